//! The report in a browser: it renders, light and dark, and fits a phone.

#![expect(clippy::expect_used, reason = "a test says so by failing")]

use std::fs;
use std::path::Path;
use std::process::Command;

use obbench::need;
use obbench::report;
use obbench::result::Record;

/// Results of two programs, some links, two commits.
fn records() -> Vec<Record> {
    let mut records = Vec::new();
    for (time, commit) in [(1, "0123456789"), (2, "abcdefabcd-dirty")] {
        for (link, rtt_us) in [("direct", 0), ("cable", 50_000), ("far", 200_000)] {
            for (tool, factor) in
                [("kitbag", 1.0), ("restic", 2.5), ("a-program-with-a-rather-long-name", 9.0)]
            {
                for (step, wall) in [("first", 10.0), ("unchanged", 0.4), ("restore-cold", 7.0)] {
                    let mut record = Record { time, rtt_us, ..Record::default() };
                    (record.commit, record.link, record.tool) = (commit.into(), link.into(), tool.into());
                    (record.workload, record.step) = ("laptop-5000".into(), step.into());
                    record.measured.wall_s =
                        wall * factor + f64::from(u32::try_from(rtt_us).unwrap_or(0)) / 1e5;
                    record.measured.peak_rss_bytes = 123_456_789;
                    records.push(record);
                }
            }
        }
    }
    records
}

/// What a page has become in the browser: its elements as text.
fn rendered(page: &Path, options: &[&str]) -> String {
    let profile = tempfile::tempdir().expect("a directory");
    let output = Command::new("chromium")
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(["--virtual-time-budget=5000", "--dump-dom"])
        .args(options)
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("it runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The page in a frame of that width, asked by a script around it.
fn asked(page: &str, width: u32, dark: bool) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let inside = page.replace('&', "&amp;").replace('"', "&quot;");
    let around = format!(
        "<!DOCTYPE html><body><iframe id=f style=\"width:{width}px;height:800px;border:0\" srcdoc=\"{inside}\"></iframe>\
         <p id=said></p><script>document.getElementById('f').onload = event => {{\
           const page = event.target.contentDocument, root = page.documentElement;\
           const seen = [...page.querySelectorAll('table, svg, h1')].filter(one => one.getBoundingClientRect().height > 10);\
           document.getElementById('said').textContent = ['overflow', root.scrollWidth - root.clientWidth, 'seen', seen.length,\
             'paper', getComputedStyle(page.body).backgroundColor, 'loads', performance.getEntriesByType('resource').length].join(' ');\
         }};</script>"
    );
    let file = directory.path().join("around.html");
    fs::write(&file, around).expect("written");
    let scheme = if dark {
        "--blink-settings=preferredColorScheme=0"
    } else {
        "--blink-settings=preferredColorScheme=1"
    };
    let shown = rendered(&file, &[scheme, "--window-size=1300,900"]);
    let said = shown.split_once("<p id=\"said\">").and_then(|(_, rest)| rest.split_once("</p>"));
    said.map(|(said, _)| said.to_string()).unwrap_or_else(|| panic!("nothing was said:\n{shown}"))
}

#[test]
fn a_browser_shows_it_on_any_screen() {
    if !need::program("chromium") {
        return;
    }
    let page = report::page(&records()).expect("drawn");
    assert!(!page.contains("<script"), "nothing to go wrong");
    for (width, dark) in [(360, false), (360, true), (1200, false)] {
        let said = asked(&page, width, dark);
        // Three tables, the charts over latency and commits, the heading.
        assert!(said.contains("overflow 0 seen 6 "), "{width}: {said}");
        let paper = if dark { "rgb(22, 24, 27)" } else { "rgb(253, 253, 251)" };
        assert!(said.contains(paper), "{dark}: {said}");
        assert!(said.ends_with("loads 0"), "{said}");
    }
}
