//! Files that describe a name space.

use std::collections::HashMap;
use std::io;
use std::path::Path as File;

use ninefold::ns::file::{
    BYTES_MAX, BadFile, BadLine, FILE_MAX, INCLUDES_MAX, LINES_MAX, Line, Op, Source, WORDS_MAX, load, quote, show,
};
use ninefold::ns::{Flags, Order};

use crate::support::{CACHE, CREATE, PLAIN, Space};

/// Files and variables of a test.
struct Texts(HashMap<&'static str, String>);

impl Source for Texts {
    fn read(&self, file: &File) -> io::Result<Vec<u8>> {
        let text = self.0.get(file.to_str().unwrap()).ok_or(io::ErrorKind::NotFound)?;
        Ok(text.clone().into_bytes())
    }

    fn variable(&self, name: &str) -> Option<Vec<u8>> {
        match name {
            "home" => Some(b"/usr/ken".to_vec()),
            "long" => Some(vec![b'x'; 8000]),
            "odd" => Some(b"a b 'c' #d".to_vec()),
            _ => None,
        }
    }
}

fn read(files: &[(&'static str, &str)]) -> Result<Vec<Line>, BadFile> {
    let texts = Texts(files.iter().map(|(name, text)| (*name, (*text).to_owned())).collect());
    load(File::new("dir/ns"), &texts)
}

fn ops(text: &str) -> Vec<Op> {
    read(&[("dir/ns", text)]).unwrap_or_else(|e| panic!("{e}")).into_iter().map(|line| line.op).collect()
}

fn error(text: &str) -> String {
    read(&[("dir/ns", text)]).unwrap_err().to_string()
}

fn bind(new: &str, old: &str, how: (Order, Flags)) -> Op {
    Op::Bind { new: new.into(), old: old.into(), how }
}

#[test]
fn every_command_is_read() {
    let text = "\
        # The servers.\n\
        mount -aC 9p://far /n/far export # and why\n\
        \tmount 9p://near /n/near\n\
        \n\
        bind -b -c new old\n\
        unmount new old\n\
        unmount old\n\
        cd /usr\n\
        clear";
    let expected = [
        Op::Mount {
            server: b"9p://far".to_vec(),
            old: b"/n/far".to_vec(),
            aname: Some(b"export".to_vec()),
            how: (Order::After, CACHE),
        },
        Op::Mount {
            server: b"9p://near".to_vec(),
            old: b"/n/near".to_vec(),
            aname: None,
            how: (Order::Replace, PLAIN),
        },
        bind("new", "old", (Order::Before, CREATE)),
        Op::Unmount { new: Some(b"new".to_vec()), old: b"old".to_vec() },
        Op::Unmount { new: None, old: b"old".to_vec() },
        Op::Cd(b"/usr".to_vec()),
        Op::Clear,
    ];
    assert_eq!(ops(text), expected);
}

#[test]
fn words_are_quoted_as_rc_does() {
    let plain = (Order::Replace, PLAIN);
    assert_eq!(ops("bind 'it''s a name' a'b c'd"), [bind("it's a name", "ab cd", plain)]);
    assert_eq!(ops("bind '' '#x'"), [bind("", "#x", plain)]);
    assert_eq!(ops("bind a#b 'two\nlines'"), [bind("a#b", "two\nlines", plain)]);
    assert_eq!(ops("bind -- -a '-b'"), [bind("-a", "-b", plain)]);
}

#[test]
fn a_variable_is_one_word_whatever_it_holds_and_none_in_quotes() {
    let plain = (Order::Replace, PLAIN);
    assert_eq!(ops("bind $home/lib '$home'"), [bind("/usr/ken/lib", "$home", plain)]);
    assert_eq!(ops("bind x$odd/y z"), [bind("xa b 'c' #d/y", "z", plain)]);
}

#[test]
fn a_file_that_is_included_stands_where_it_is_asked_for() {
    let lines = read(&[("dir/ns", "cd /a\n. more/ns\ncd /c"), ("dir/more/ns", "\n. /abs"), ("/abs", "cd /b")]).unwrap();
    let seen: Vec<String> = lines.iter().map(|line| format!("{} {:?}", line.at, line.op)).collect();
    let cd = |at: &str, dir: &[u8]| format!("{at} {:?}", Op::Cd(dir.to_vec()));
    assert_eq!(seen, [cd("dir/ns:1", b"/a"), cd("/abs:1", b"/b"), cd("dir/ns:3", b"/c")]);
}

#[test]
fn an_error_tells_the_file_the_line_what_is_wrong_and_what_to_do() {
    for (text, told) in [
        ("clear\nmuont x y", "dir/ns:2: 'muont' is no command: write mount, bind, unmount, clear, cd or . (a dot)"),
        ("bind -x a b", "dir/ns:1: -x is not known: -a and -b say where in a union"),
        ("bind -ab a b", "dir/ns:1: -a and -b contradict each other: give one of them"),
        ("bind a", "dir/ns:1: bind takes two words: write bind [-abcC] NEW OLD"),
        ("mount a b c d", "dir/ns:1: mount takes two or three words: write mount [-abcC] SERVER OLD [ANAME]"),
        ("\n\nunmount", "dir/ns:3: unmount takes one or two words"),
        ("clear all", "dir/ns:1: clear takes no word"),
        ("cd 'a\n\nb", "dir/ns:1: a quote is not closed"),
        ("cd $nothing", "dir/ns:1: $nothing is not set: set it in the environment"),
        ("cd $", "dir/ns:1: $ stands before no name"),
        ("cd a\0b", "dir/ns:1: a NUL"),
        (". none", "dir/ns:1: cannot read dir/none"),
    ] {
        assert!(error(text).starts_with(told), "{text:?}: {}", error(text));
    }
}

#[test]
fn what_a_hostile_file_can_cost_is_bounded() {
    assert!(matches!(read(&[("dir/ns", ". ns")]).unwrap_err().why, BadLine::TooDeep));
    // Each twice the next: without a bound for all of them 65,536 files.
    let twice = ". b\n. b\n";
    let deep = [("dir/ns", twice), ("dir/b", ". ns\n. ns\n")];
    assert!(matches!(read(&deep).unwrap_err().why, BadLine::TooDeep));
    let many = "clear\n".repeat(LINES_MAX + 1);
    assert!(matches!(read(&[("dir/ns", &many)]).unwrap_err().why, BadLine::TooMany));
    // Lines that say nothing are read too.
    let empty = "# nothing\n".repeat(LINES_MAX + 1);
    assert!(matches!(read(&[("dir/ns", &empty)]).unwrap_err().why, BadLine::TooMany));
    let large = " ".repeat(FILE_MAX + 1);
    assert!(matches!(read(&[("dir/ns", &large)]).unwrap_err().why, BadLine::LargeFile(_)));
    let long = format!("cd {}", "x".repeat(9000));
    assert!(matches!(read(&[("dir/ns", &long)]).unwrap_err().why, BadLine::LongWord));
    assert_eq!(INCLUDES_MAX, 16);
}

#[test]
fn a_line_has_no_more_words_than_a_command_takes() {
    assert!(matches!(read(&[("dir/ns", &"bind $home ".repeat(WORDS_MAX))]).unwrap_err().why, BadLine::ManyWords));
    assert_eq!(ops("mount -a -c -C 9p://far /n/far aname").len(), 1);
}

#[test]
fn files_that_fan_out_wide_and_shallow_are_bounded_by_what_they_hold_together() {
    // One level deep, few lines, and each file within its bound.
    let wide = ". big\n".repeat(BYTES_MAX / FILE_MAX + 1);
    let big = format!("clear\n#{}", "x".repeat(FILE_MAX - 16));
    let error = read(&[("dir/ns", &wide), ("dir/big", &big)]).unwrap_err();
    assert!(matches!(error.why, BadLine::TooMuch), "{error}");
    // Variables may hold much where their names are short.
    let expanded = "cd $long\n".repeat(BYTES_MAX / 8000 + 1);
    assert!(expanded.len() < FILE_MAX / 8);
    assert!(matches!(read(&[("dir/ns", &expanded)]).unwrap_err().why, BadLine::TooMuch));
}

#[test]
fn a_table_is_written_as_a_file_that_makes_it() {
    let mut space = Space::at(1);
    space.mount(2, "/bin", (Order::Before, CREATE)).unwrap();
    space.mount(3, "/bin/it's odd\n#1", (Order::Replace, CACHE)).unwrap();
    space.mount(4, "/n/-x", (Order::Replace, PLAIN)).unwrap();
    let shown = show(&space.table, |file| file.to_string().into_bytes());
    let mut again = Space::default();
    for op in ops(std::str::from_utf8(&shown).unwrap()) {
        let Op::Mount { server, old, aname: None, how } = op else { panic!("{op:?}") };
        let file = String::from_utf8(server).unwrap().parse().unwrap();
        again.mount(file, std::str::from_utf8(&old).unwrap(), how).unwrap();
    }
    assert_eq!(show(&again.table, |file| file.to_string().into_bytes()), shown);
    let of = |space: &Space| format!("{:?}", space.table.mounts());
    assert_eq!(of(&again), of(&space));
    assert_eq!(quote(b"it's"), b"'it''s'");
}

#[test]
fn whatever_a_file_holds_it_is_read_or_refused_and_what_is_quoted_reads_back() {
    let pieces = [
        "mount", "bind", "unmount", ".", "cd", "-a", "-cC", "'", "''", "$home", "$", "#", " ", "\n", "\t", "x", "/",
        "\0", "\u{e9}",
    ];
    for seed in 0..20_000_u64 {
        let mut state = seed;
        let mut next = || {
            // SplitMix64 (Steele, Lea, Flood 2014).
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            pieces[((z ^ (z >> 31)) % pieces.len() as u64) as usize]
        };
        let text: String = (0..12).map(|_| next()).collect();
        if let Err(e) = read(&[("dir/ns", &text)]) {
            assert!(e.to_string().starts_with("dir/ns:"), "seed {seed}: {e}");
        }
        let word: String = text.replace('\0', "");
        let line = [b"cd ", &quote(word.as_bytes())[..]].concat();
        let line = String::from_utf8(line).unwrap();
        assert_eq!(ops(&line), [Op::Cd(word.into_bytes())], "seed {seed}: {line:?}");
    }
}
