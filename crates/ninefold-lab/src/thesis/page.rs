//! A page of HTML: headings, paragraphs, tables and pictures, each text escaped where it is put in.

use std::fmt::Write;

/// Text in which nothing is a mark.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[derive(Debug)]
pub struct Page(String);

impl Page {
    pub fn new(title: &str) -> Page {
        let title = escaped(title);
        Page(format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<style>\n\
             body {{ font: 15px/1.4 sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em }}\n\
             table {{ border-collapse: collapse; margin: 0.5em 0 1.5em }}\n\
             td, th {{ border: 1px solid #bbb; padding: 0.15em 0.5em; text-align: right }}\n\
             td:first-child, th:first-child, td.note {{ text-align: left }}\n\
             th {{ background: #eee }}\n</style>\n<h1>{title}</h1>\n"
        ))
    }

    pub fn heading(&mut self, text: &str) {
        let _ = writeln!(self.0, "<h2>{}</h2>", escaped(text));
    }

    pub fn smaller(&mut self, text: &str) {
        let _ = writeln!(self.0, "<h3>{}</h3>", escaped(text));
    }

    pub fn paragraph(&mut self, text: &str) {
        let _ = writeln!(self.0, "<p>{}</p>", escaped(text));
    }

    /// Rows of as many cells as there are columns; nothing where there are no rows.
    pub fn table(&mut self, columns: &[String], rows: &[Vec<String>]) {
        if rows.is_empty() {
            return;
        }
        let cells = |tag: &str, cells: &[String]| -> String {
            cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell))).collect()
        };
        let _ = writeln!(self.0, "<table>\n<tr>{}</tr>", cells("th", columns));
        for row in rows {
            let _ = writeln!(self.0, "<tr>{}</tr>", cells("td", row));
        }
        self.0 += "</table>\n";
    }

    /// A picture in SVG, made here.
    pub fn picture(&mut self, svg: &str) {
        let _ = writeln!(self.0, "<div>{svg}</div>");
    }

    pub fn finish(self) -> String {
        self.0 + "</html>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_said_is_text_and_no_mark() {
        let mut page = Page::new("a & b");
        page.table(&["x".to_owned()], &[vec!["<b>\"no\"</b>".to_owned()]]);
        page.table(&["empty".to_owned()], &[]);
        let text = page.finish();
        assert!(text.contains("<td>&lt;b&gt;&quot;no&quot;&lt;/b&gt;</td>"), "{text}");
        assert!(text.contains("<h1>a &amp; b</h1>") && !text.contains("empty"), "{text}");
    }
}
