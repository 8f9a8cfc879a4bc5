//! Rust source reduced to what the compiler acts on. Every function keeps lines where they are, so that line numbers hold.

/// The source with the text of comments, strings and character literals blanked; the quotes stay.
pub fn code(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut out: Vec<char> = chars.clone();
    let mut blank = |from: usize, to: usize| {
        for c in &mut out[from..to] {
            if *c != '\n' {
                *c = ' ';
            }
        }
    };
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut i = 0;
    while i < chars.len() {
        match (at(i), at(i + 1)) {
            ('/', '/') => {
                let start = i;
                while i < chars.len() && at(i) != '\n' {
                    i += 1;
                }
                blank(start, i);
            }
            ('/', '*') => {
                let start = i;
                let mut depth = 0;
                while i < chars.len() {
                    match (at(i), at(i + 1)) {
                        ('/', '*') => (depth, i) = (depth + 1, i + 2),
                        ('*', '/') => (depth, i) = (depth - 1, i + 2),
                        _ => i += 1,
                    }
                    if depth == 0 {
                        break;
                    }
                }
                i = i.min(chars.len());
                blank(start, i);
            }
            ('"', _) => {
                let start = i + 1;
                i = start;
                while i < chars.len() && at(i) != '"' {
                    i += if at(i) == '\\' { 2 } else { 1 };
                }
                i = i.min(chars.len());
                blank(start, i);
                i += 1;
            }
            ('r', '"' | '#') if i == 0 || !in_raw_free_word(&chars, i) => {
                let mut quote = i + 1;
                while at(quote) == '#' {
                    quote += 1;
                }
                if at(quote) != '"' {
                    i += 1; // a raw identifier
                    continue;
                }
                let hashes = quote - i - 1;
                let start = quote + 1;
                let mut end = start;
                while end < chars.len() && !(at(end) == '"' && (1..=hashes).all(|n| at(end + n) == '#')) {
                    end += 1;
                }
                blank(start, end);
                i = (end + 1 + hashes).min(chars.len());
            }
            ('\'', '\\') => {
                let start = i + 1;
                i += 3; // the escaped character may itself be a quote
                while i < chars.len() && at(i) != '\'' {
                    i += 1;
                }
                i = i.min(chars.len());
                blank(start, i);
                i += 1;
            }
            ('\'', _) if at(i + 2) == '\'' => {
                blank(i + 1, i + 2);
                i += 3;
            }
            _ => i += 1,
        }
    }
    out.into_iter().collect()
}

/// Is the `r` at `i` the end of a longer word, other than the prefixes `br` and `cr`?
fn in_raw_free_word(chars: &[char], i: usize) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    match chars[i - 1] {
        'b' | 'c' => i >= 2 && word(chars[i - 2]),
        other => word(other),
    }
}

/// `code` with each item under `#[cfg(test)]` blanked; all of it when the file is under `#![cfg(test)]`.
pub fn without_tests(code: &str) -> String {
    let blank = |text: &str| -> String { text.chars().map(|c| if c == '\n' { c } else { ' ' }).collect() };
    if code.contains("#![cfg(test)]") {
        return blank(code);
    }
    let mut out = String::new();
    let mut rest = code;
    while let Some(start) = rest.find("#[cfg(test)]") {
        let end = start + item_length(&rest[start..]);
        out.push_str(&rest[..start]);
        out.push_str(&blank(&rest[start..end]));
        rest = &rest[end..];
    }
    out + rest
}

/// Bytes from an attribute to the end of the item that it stands on: its closing brace, or a `;` outside brackets.
fn item_length(item: &str) -> usize {
    let mut braces = 0;
    let mut brackets = 0;
    for (at, c) in item.char_indices() {
        match c {
            '{' => braces += 1,
            '}' => braces -= 1,
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            _ => {}
        }
        let closed = c == '}' && braces == 0;
        if closed || (c == ';' && braces == 0 && brackets == 0) {
            return at + 1;
        }
    }
    item.len()
}

/// The numbers of the lines that hold `word` as a whole identifier.
pub fn lines_with_word(code: &str, word: &str) -> Vec<usize> {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let holds = |line: &str| {
        line.match_indices(word)
            .any(|(at, _)| !line[..at].ends_with(part) && !line[at + word.len()..].starts_with(part))
    };
    (1..).zip(code.lines()).filter(|(_, line)| holds(line)).map(|(number, _)| number).collect()
}
