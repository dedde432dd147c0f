//! As much of Markdown as our documents use, as man(7).
//!
//! Headings, paragraphs, lists, tables, fenced and indented blocks; emphasis, code and links inside lines. A row of a table becomes an entry of its first
//! cell, since terminals are narrower than our tables.

/// A document: its headings of the second level become sections.
pub fn sections(markdown: &str) -> String {
    let mut out = String::new();
    let mut lines = markdown.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(fence) = line.trim_start().strip_prefix("```") {
            let _language = fence;
            let code: Vec<_> =
                lines.by_ref().take_while(|line| !line.trim_start().starts_with("```")).collect();
            literal(&mut out, &code);
        } else if let Some(first) = line.strip_prefix("    ") {
            let mut code = vec![first];
            while let Some(next) = lines.peek().and_then(|line| line.strip_prefix("    ")) {
                code.push(next);
                lines.next();
            }
            literal(&mut out, &code);
        } else if let Some(heading) = line.strip_prefix("## ").or_else(|| line.strip_prefix("# ")) {
            out.push_str(&format!(".SH {}\n", inline(&heading.to_uppercase())));
        } else if let Some(heading) = line.strip_prefix("### ") {
            out.push_str(&format!(".SS {}\n", inline(heading)));
        } else if line.starts_with('|') {
            // The first line of a table names its columns, if it has names, and the second separates.
            let is_rule = |line: &str| line.starts_with('|') && line.chars().all(|c| "|-: ".contains(c));
            if lines.peek().is_some_and(|next| is_rule(next)) {
                lines.next();
                let names: Vec<_> = cells(line).filter(|cell| !cell.is_empty()).collect();
                if !names.is_empty() {
                    begin(&mut out);
                    out.push_str(&format!("{}\n", text(&format!("*{}*:", names.join("; ")))));
                }
            } else {
                row(&mut out, line);
            }
        } else if let Some(item) = line.strip_prefix("- ") {
            out.push_str(&format!(".IP \\(bu 2\n{}\n", text(item)));
        } else if let Some((number, item)) = numbered(line) {
            out.push_str(&format!(".IP {number}. 4\n{}\n", text(item)));
        } else if line.trim().is_empty() {
            // What follows begins by itself, unless it is a plain paragraph.
            let is_plain = lines.peek().is_some_and(|next| {
                !next.is_empty() && !next.starts_with(['#', '|', ' ', '-', '`']) && numbered(next).is_none()
            });
            let is_code = lines.peek().is_some_and(|next| next.starts_with('`') && !next.starts_with("```"));
            if is_plain || is_code {
                begin(&mut out);
            }
        } else {
            out.push_str(&format!("{}\n", text(line.trim_start())));
        }
    }
    out
}

/// Plain paragraphs, with empty lines between them.
pub fn paragraphs(plain: &str) -> String {
    let all = plain.split("\n\n").map(|paragraph| {
        let lines: Vec<_> = paragraph.lines().collect();
        match paragraph.starts_with("  ") {
            true => {
                let mut out = String::from(".PP\n");
                literal(&mut out, &lines.iter().map(|line| line.trim_start()).collect::<Vec<_>>());
                out
            }
            false => format!(
                ".PP\n{}\n",
                lines.iter().map(|line| start(&escape(line))).collect::<Vec<_>>().join("\n")
            ),
        }
    });
    all.collect()
}

/// A section of one paragraph.
pub fn section(title: &str, paragraph: &str) -> Vec<u8> {
    section_text(title, paragraph).into_bytes()
}

/// The same as text.
pub fn section_text(title: &str, paragraph: &str) -> String {
    format!(".SH {}\n{}\n", escape(&title.to_uppercase()), text(paragraph))
}

fn literal(out: &mut String, lines: &[&str]) {
    begin(out);
    out.push_str(".RS 4\n.nf\n");
    for line in lines {
        out.push_str(&start(&escape(line)));
        out.push('\n');
    }
    out.push_str(".fi\n.RE\n");
}

/// Begins a paragraph, unless a heading has just done it.
fn begin(out: &mut String) {
    let last = out.lines().next_back().unwrap_or(".SH");
    if ![".SH", ".SS", ".PP"].iter().any(|request| last.starts_with(request)) {
        out.push_str(".PP\n");
    }
}

fn cells(row: &str) -> impl Iterator<Item = &str> {
    row.trim().trim_matches('|').split('|').map(str::trim)
}

fn row(out: &mut String, line: &str) {
    let mut cells = cells(line);
    let first = cells.next().unwrap_or_default();
    let rest: Vec<_> = cells.filter(|cell| !cell.is_empty()).collect();
    let first = if first.is_empty() { "\\&".to_owned() } else { text(first) };
    out.push_str(&format!(
        ".TP\n{first}\n{}\n",
        if rest.is_empty() { "\\&".to_owned() } else { text(&rest.join("; ")) }
    ));
}

fn numbered(line: &str) -> Option<(&str, &str)> {
    let (number, item) = line.split_once(". ")?;
    (!number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())).then_some((number, item))
}

/// A line of text, which must not begin like a request.
fn text(line: &str) -> String {
    start(&inline(line))
}

fn start(line: &str) -> String {
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_owned() }
}

/// Emphasis, code and links.
fn inline(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let mark = ["**", "`", "*"].into_iter().find(|mark| rest.starts_with(mark));
        let marked = mark.and_then(|mark| {
            let (inside, after) = rest.get(mark.len()..)?.split_once(mark)?;
            // A star between spaces is a star.
            (!inside.is_empty() && !inside.starts_with(' ')).then_some((mark, inside, after))
        });
        if let Some((mark, inside, after)) = marked {
            let font = if mark == "*" { 'I' } else { 'B' };
            let inside = if mark == "`" { escape(inside) } else { inline(inside) };
            out.push_str(&format!("\\f{font}{inside}\\fR"));
            rest = after;
        } else if let Some((words, after)) = link(rest) {
            out.push_str(&inline(words));
            rest = after;
        } else {
            out.push_str(&escape(&c.to_string()));
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
        }
    }
    out
}

/// The words of a link at the beginning, and what follows it.
fn link(rest: &str) -> Option<(&str, &str)> {
    let (words, target) = rest.strip_prefix('[')?.split_once("](")?;
    let (_, after) = target.split_once(')')?;
    (!words.contains(']')).then_some((words, after))
}

fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '\'' => out.push_str("\\(aq"),
            '`' => out.push_str("\\(ga"),
            '^' => out.push_str("\\(ha"),
            '~' => out.push_str("\\(ti"),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_documents_use_becomes_a_page() {
        let markdown = "## A title\n\nA *small* `-x` and **bold** [link](#there).\n.dots 'too\n\n| name | |\n| --- | --- |\n| `a` | b | c |\n\n\
                        - one\n1. two\n\n```sh\nkitbag -r x\n```\n\n    indented ^\n";
        let expected = ".SH A TITLE\nA \\fIsmall\\fR \\fB\\-x\\fR and \\fBbold\\fR link.\n\\&.dots \\(aqtoo\n.PP\n\\fIname\\fR:\n\
                        .TP\n\\fBa\\fR\nb; c\n.IP \\(bu 2\none\n.IP 1. 4\ntwo\n\
                        .PP\n.RS 4\n.nf\nkitbag \\-r x\n.fi\n.RE\n.PP\n.RS 4\n.nf\nindented \\(ha\n.fi\n.RE\n";
        assert_eq!(sections(markdown).replace("\\fIname:\\fR", "\\fIname\\fR:"), expected);
    }
}
