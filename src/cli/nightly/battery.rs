//! Whether the machine runs on battery, as the kernel tells below `/sys/class/power_supply`.

use std::fs;
use std::path::Path;

/// Where the kernel shows what feeds the machine.
pub const POWER_SUPPLIES: &str = "/sys/class/power_supply";

/// Whether the machine whose power supplies are shown in `root` runs on battery: none of its chargers is plugged in, and a battery
/// feeds it. Batteries of mice and the like do not count. What cannot be read is taken for a machine without a battery.
#[must_use]
pub fn is_discharging(root: &Path) -> bool {
    let (mut discharging, mut present, mut unplugged) = (false, false, false);
    for supply in fs::read_dir(root).into_iter().flatten().flatten() {
        let read = |name: &str| {
            fs::read_to_string(supply.path().join(name))
                .map(|text| text.trim().to_owned())
                .unwrap_or_default()
        };
        if read("scope") == "Device" {
            continue;
        }
        match read("type").as_str() {
            "Battery" => {
                present |= read("present") != "0";
                discharging |= read("status") == "Discharging";
            }
            "Mains" | "USB" | "Wireless" => match read("online").as_str() {
                "0" => unplugged = true,
                // 1, or 2 for one that regulates its voltage: a charger feeds it, whatever the batteries do.
                "1" | "2" => return false,
                _ => {}
            },
            _ => {}
        }
    }
    // A battery that keeps its charge says "Not charging" even though nothing else feeds the machine.
    discharging || (present && unplugged)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Power supplies as `name attribute=value …`.
    fn machine(supplies: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for supply in supplies {
            let mut words = supply.split(' ');
            let dir = root.path().join(words.next().expect("a name"));
            fs::create_dir(&dir).expect("made");
            for (name, value) in words.filter_map(|word| word.split_once('=')) {
                fs::write(dir.join(name), format!("{value}\n")).expect("written");
            }
        }
        root
    }

    #[test]
    fn who_runs_on_battery() {
        let cases: &[(&[&str], bool)] = &[
            (&[], false),
            (&["AC type=Mains online=1"], false),
            (&["AC type=Mains online=0"], false),
            (&["BAT0 type=Battery status=Discharging"], true),
            (&["BAT0 type=Battery status=Full"], false),
            (&["AC type=Mains online=0", "BAT0 type=Battery status=Discharging"], true),
            (&["AC type=Mains online=0", "BAT0 type=Battery status=Unknown"], true),
            (&["AC type=Mains online=0", "BAT0 type=Battery present=0 status=Unknown"], false),
            (&["AC type=Mains online=1", "BAT0 type=Battery status=Charging"], false),
            // A weak charger: the battery helps out.
            (&["C0 type=USB online=1", "BAT0 type=Battery status=Discharging"], false),
            (
                &["C0 type=USB online=0", "C1 type=USB online=1", "BAT0 type=Battery status=Discharging"],
                false,
            ),
            (&["mouse type=Battery scope=Device status=Discharging"], false),
            (&["broken"], false),
        ];
        for (supplies, expected) in cases {
            assert_eq!(is_discharging(machine(supplies).path()), *expected, "{supplies:?}");
        }
        assert!(!is_discharging(Path::new("/nonexistent/power_supply")));
    }
}
