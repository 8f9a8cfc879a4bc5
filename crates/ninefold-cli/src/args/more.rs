//! What help and manual say beside the flags: addresses, exit statuses, environment.

use std::io;

use clap_mangen::roff::{Roff, bold, roman};

type Rows = &'static [(&'static str, &'static str)];

const ADDRESSES: Rows = &[
    ("HOST:/PATH, USER@HOST:/PATH", "A file of HOST, by ssh; PATH is taken as it is."),
    ("9p+ssh://[USER@]HOST/PATH", "The same."),
    ("9p://HOST[:PORT]/PATH", "A file of the server on that TCP port, 5640 when none is given."),
    ("9p+unix:/SOCKET:/PATH", "A file of the server on a Unix socket."),
    (
        "?aname=NAME&dialect=9P2000.u",
        "Behind an address: an export by its name, and the only dialect to speak: 9P2000, 9P2000.u or 9P2000.L. In every \
         form but the first, %HH stands for a byte.",
    ),
    (
        "..",
        "In a PATH, takes away the name before it, before anything is looked up, as Plan 9 does. Behind a symbolic link \
         that is not Linux's way: if o2/l leads to ../o/in, then o2/l/../x is o2/x, and not o/x.",
    ),
];

const STATUSES: Rows = &[
    ("0", "Done."),
    ("1", "Something failed, and was told; the rest is done."),
    ("2", "The command line is wrong."),
    (
        "130",
        "Ended by Ctrl-C or SIGTERM: temporary files are removed first, but for those that cp --resume goes on with.",
    ),
];

const ENVIRONMENT: Rows = &[
    ("NINEFOLD_SSH", "How ssh is called, in words of a shell: ssh -p 2222 -i 'my key'"),
    ("RUST_LOG", "What is logged on standard error, more finely than by -v: ninefold=debug"),
];

const SECTIONS: [(&str, Rows); 3] = [("Addresses", ADDRESSES), ("Exit status", STATUSES), ("Environment", ENVIRONMENT)];

/// Behind the flags of `--help`.
pub fn help() -> String {
    let section = |(title, rows): (&str, Rows)| {
        let rows: String = rows.iter().map(|(term, text)| format!("  {term}\n          {text}\n")).collect();
        format!("{title}:\n{rows}")
    };
    SECTIONS.map(section).join("\n")
}

/// Sections of the manual.
pub fn manual(out: &mut dyn io::Write) -> io::Result<()> {
    let mut roff = Roff::new();
    for (title, rows) in SECTIONS {
        roff.control("SH", [title.to_uppercase().as_str()]);
        for (term, text) in rows {
            roff.control("TP", []).text([bold(*term)]).text([roman(*text)]);
        }
    }
    roff.to_writer(out)
}
