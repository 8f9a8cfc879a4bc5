//! Comparing an R line with the message that came: wildcards, captured values, lists in any order.

use std::collections::BTreeMap;

use ninefold_proto::print::{ParseError, words};

/// Values of `$name`, each the word as it was printed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Values(BTreeMap<String, String>);

impl Values {
    /// Sets a value, replacing any before it.
    pub fn set(&mut self, name: &str, word: impl Into<String>) {
        self.0.insert(name.to_owned(), word.into());
    }

    /// `line` with its variables and repetitions replaced; the error names a variable that has no value.
    pub fn substitute(&self, line: &str) -> Result<String, String> {
        replace(line, |name| self.0.get(name).cloned().ok_or_else(|| format!("${name} has no value yet")))
    }

    /// Whether `got` is what `expected` asks for. Values met for the first time are kept when it is.
    pub fn matches(&mut self, expected: &str, got: &str) -> Result<bool, ParseError> {
        let expected = replace(expected, |name| {
            Ok::<_, std::convert::Infallible>(match self.0.get(name) {
                Some(value) => value.clone(),
                None => format!("${name}"),
            })
        });
        let Ok(expected) = expected;
        let found = sequence(&words(&expected)?, &words(got)?, self.clone(), &|values| Some(values));
        if let Some(values) = found {
            *self = values;
            return Ok(true);
        }
        Ok(false)
    }
}

/// What remains to be matched, given the values so far. Matching is written in this form because `...`, lists
/// and captures must be able to try again.
type Rest<'a> = &'a dyn Fn(Values) -> Option<Values>;

fn sequence(expected: &[&str], got: &[&str], values: Values, rest: Rest<'_>) -> Option<Values> {
    let Some((&first, more)) = expected.split_first() else {
        return if got.is_empty() { rest(values) } else { None };
    };
    if first == "..." {
        return (0..=got.len()).find_map(|skipped| sequence(more, &got[skipped..], values.clone(), rest));
    }
    let (word, left) = got.split_first()?;
    one(first, word, values, &|values| sequence(more, left, values, rest))
}

/// Each word of `expected` matches one of `got`; none is left over unless the list is `open`.
fn any_order(expected: &[&str], got: &[&str], open: bool, values: Values, rest: Rest<'_>) -> Option<Values> {
    let Some((&first, more)) = expected.split_first() else {
        return if open || got.is_empty() { rest(values) } else { None };
    };
    (0..got.len()).find_map(|i| {
        let left = [&got[..i], &got[i + 1..]].concat();
        one(first, got[i], values.clone(), &|values| any_order(more, &left, open, values, rest))
    })
}

fn one(expected: &str, got: &str, mut values: Values, rest: Rest<'_>) -> Option<Values> {
    if expected == "*" || expected == got {
        return rest(values);
    }
    if let Some(name) = expected.strip_prefix('$') {
        // A value taken earlier in the same line is not yet in the text of the line.
        return match values.0.get(name) {
            Some(value) if value == got => rest(values),
            Some(_) => None,
            None => {
                values.set(name, got);
                rest(values)
            }
        };
    }
    if let (Some(expected), Some(got)) = (inside(expected, '(', ')'), inside(got, '(', ')')) {
        return sequence(&expected, &got, values, rest);
    }
    if let (Some(expected), Some(got)) = (inside(expected, '[', ']'), inside(got, '[', ']')) {
        let (dots, expected): (Vec<&str>, Vec<&str>) = expected.into_iter().partition(|word| *word == "...");
        return any_order(&expected, &got, !dots.is_empty(), values, rest);
    }
    let (index, expected) = expected.split_once(':').filter(|(index, _)| index.parse::<u16>().is_ok())?;
    let (at, got) = got.split_once(':')?;
    if index == at { one(expected, got, values, rest) } else { None }
}

fn inside(word: &str, open: char, close: char) -> Option<Vec<&str>> {
    words(word.strip_prefix(open)?.strip_suffix(close)?).ok()
}

/// Copies `line`, replacing `$name` by `value(name)` and `5*'ab'` by the string five times, both outside quotes.
fn replace<E>(line: &str, mut value: impl FnMut(&str) -> Result<String, E>) -> Result<String, E> {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        if c == '\'' {
            let end = quoted_len(rest);
            let (quoted, left) = rest.split_at(end);
            match repetition(&out) {
                Some((number, times)) if end > 1 => {
                    out.truncate(number);
                    out.push('\'');
                    out.push_str(&quoted[1..end - 1].repeat(times));
                    out.push('\'');
                }
                _ => out.push_str(quoted),
            }
            rest = left;
        } else if c == '$' {
            let name = &rest[1..];
            let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
            out.push_str(&value(&name[..end])?);
            rest = &name[end..];
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    Ok(out)
}

/// Bytes of the quoted string that `text` begins with.
fn quoted_len(text: &str) -> usize {
    let mut escaped = false;
    for (i, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\'' => return i + 1,
            _ => {}
        }
    }
    text.len()
}

/// The number in `5*` at the end of `text`, and where it begins.
fn repetition(text: &str) -> Option<(usize, usize)> {
    let number = text.strip_suffix('*')?;
    let start = number.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |i| i + 1);
    number[start..].parse().ok().map(|times| (start, times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn matched(expected: &str, got: &str) -> Values {
        let mut values = Values::default();
        assert!(values.matches(expected, got).unwrap(), "{expected}\n{got}");
        values
    }

    #[track_caller]
    fn refused(expected: &str, got: &str) {
        let mut values = Values::default();
        assert!(!values.matches(expected, got).unwrap(), "{expected}\n{got}");
        assert_eq!(values, Values::default(), "a line that did not match left values behind");
    }

    #[test]
    fn a_star_takes_one_word_and_dots_take_any_number() {
        matched("Rwrite tag 1 count *", "Rwrite tag 1 count 7");
        matched("* tag 1 ...", "Rlerror tag 1 ecode 2");
        matched("Rgetattr ... size 5 ...", "Rgetattr tag 1 mode 0644 size 5 blocks 8");
        matched("Rclunk tag 1 ...", "Rclunk tag 1");
        refused("Rwrite tag 1 count *", "Rwrite tag 1 count 7 8");
        refused("Rgetattr ... size 5 ...", "Rgetattr tag 1 size 6 blocks 5");
    }

    #[test]
    fn quoted_words_are_compared_whole() {
        matched("Rread tag 1 count 3 'a b'", "Rread tag 1 count 3 'a b'");
        refused("Rread tag 1 count 3 '*'", "Rread tag 1 count 3 'a b'");
        refused("Rread tag 1 count 3 '$x'", "Rread tag 1 count 3 'a b'");
    }

    #[test]
    fn a_value_is_taken_once_and_compared_from_then_on() {
        let mut values = matched("Rattach tag 1 qid $q", "Rattach tag 1 qid (a1 0 d)");
        assert!(values.matches("Rwalk tag 1 nwqid 1 0:$q", "Rwalk tag 1 nwqid 1 0:(a1 0 d)").unwrap());
        assert!(!values.matches("Rwalk tag 1 nwqid 1 0:$q", "Rwalk tag 1 nwqid 1 0:(a2 0 d)").unwrap());
        refused("Rwalk tag 1 nwqid 2 0:$q 1:$q", "Rwalk tag 1 nwqid 2 0:(1 0 ) 1:(2 0 )");
        matched("Rwalk tag 1 nwqid 2 0:$q 1:$q", "Rwalk tag 1 nwqid 2 0:(1 0 ) 1:(1 0 )");
    }

    #[test]
    fn a_value_can_be_taken_from_inside_a_qid() {
        let values = matched("Rattach tag 1 qid ($path * d)", "Rattach tag 1 qid (a1 7 d)");
        assert_eq!(values.substitute("($path 0 )"), Ok("(a1 0 )".to_owned()));
        refused("Rattach tag 1 qid ($path * d)", "Rattach tag 1 qid (a1 7 )");
        matched("Rwalk tag 1 nwqid 1 0:(* * )", "Rwalk tag 1 nwqid 1 0:(a1 7 )");
        refused("Rwalk tag 1 nwqid 1 0:(* * )", "Rwalk tag 1 nwqid 1 1:(a1 7 )");
    }

    #[test]
    fn a_list_matches_in_any_order_and_leaves_nothing_over() {
        let got = "Rreaddir tag 1 count 9 [((1 0 ) 1 8 'a') ((2 0 ) 2 8 'b')]";
        let values = matched("Rreaddir tag 1 count * [((...) $second 8 'b') (* * * 'a')]", got);
        assert_eq!(values.substitute("$second"), Ok("2".to_owned()));
        refused("Rreaddir tag 1 count * [(* * * 'a')]", got);
        matched("Rreaddir tag 1 count * [... (* * * 'a')]", got);
        refused("Rreaddir tag 1 count * [(* * * 'c') ...]", got);
        matched("Rreaddir tag 1 count * [* (* 1 * *)]", got);
    }

    #[test]
    fn variables_and_repetitions_are_replaced_outside_quotes_only() {
        let mut values = Values::default();
        values.set("user", "'glenda'");
        values.set("n", "12");
        assert_eq!(values.substitute("uname $user n $n"), Ok("uname 'glenda' n 12".to_owned()));
        assert_eq!(values.substitute("data '$user 2*''x'"), Ok("data '$user 2*''x'".to_owned()));
        assert_eq!(values.substitute("nwname 1 0:3*'ab' 'c'"), Ok("nwname 1 0:'ababab' 'c'".to_owned()));
        assert_eq!(values.substitute("fid $none"), Err("$none has no value yet".to_owned()));
    }
}
