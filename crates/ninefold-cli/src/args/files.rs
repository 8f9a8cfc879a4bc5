//! The commands on files: what they take.
//!
//! A URL is an address as [`ninefold::transport::Address`] has it; its path is the file meant.

use std::ffi::OsString;

use clap::ArgAction;
use ninefold::client::FileType;

use crate::files::TimeStyle;
use crate::given::Given;
use crate::place::Place;

/// List directories, as ls does.
///
/// Sorted by bytes, one name a line unless standard output is a terminal. What the server does not tell is `?` with -l:
/// the number of links, in 9P2000 and at some servers of 9P2000.u. Only 9P2000.L tells the disk space that `total` sums up; elsewhere a file is taken to
/// fill blocks of 4 KiB, and a directory to have one.
// `-h` is its namesake's.
#[derive(Clone, Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Ls {
    /// The files and directories.
    #[arg(required = true, value_name = "URL")]
    pub urls: Vec<Given>,
    /// One line a file, with its attributes; times in this machine's zone (TZ).
    #[arg(short)]
    pub long: bool,
    /// Directories in directories too.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Names that begin with a dot too.
    #[arg(short, long)]
    pub all: bool,
    /// The directory itself, not what it holds.
    #[arg(short, long)]
    pub directory: bool,
    /// One name a line on a terminal too.
    #[arg(short = '1')]
    pub one: bool,
    /// How times are written with -l: locale, iso, long-iso, full-iso [default: TIME_STYLE, or locale].
    #[arg(long, value_name = "STYLE", value_enum, hide_possible_values = true)]
    pub time_style: Option<TimeStyle>,
    /// Sizes in KiB, MiB, GiB.
    #[arg(short = 'h', short_alias = 'H', long)]
    pub human_readable: bool,
    /// One JSON object a line, with all attributes; -l or not.
    #[arg(long)]
    pub json: bool,
    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
}

/// Print files, one after another.
#[derive(Debug, clap::Args)]
pub struct Cat {
    /// The files.
    #[arg(required = true, value_name = "URL")]
    pub urls: Vec<Given>,
    /// Move data in 9P messages, never in streams beside them.
    #[arg(long)]
    pub no_stream: bool,
}

/// Print all that is known of files, as stat does.
///
/// The inode is the qid's path. What the dialect does not tell is `-`: the device everywhere, blocks and the times of
/// change and birth in 9P2000.u and 9P2000, links and the numbers of owners in 9P2000.
#[derive(Debug, clap::Args)]
pub struct Stat {
    /// The files; a symbolic link itself, not what it points to, unless a slash follows it.
    #[arg(required = true, value_name = "URL")]
    pub urls: Vec<Given>,
    /// Go through a symbolic link.
    #[arg(short = 'L', long)]
    pub dereference: bool,
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
}

/// Sum up the disk space of directories, as du does, in KiB.
///
/// A file with several names counts once. Only 9P2000.L tells the disk space of a file; in 9P2000.u and 9P2000 a file
/// is taken to fill blocks of 4 KiB, and a directory to have one.
// `-h` is its namesake's.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Du {
    /// The files and directories.
    #[arg(required = true, value_name = "URL")]
    pub urls: Vec<Given>,
    /// Only the sum of each URL.
    #[arg(short, long, conflicts_with = "all")]
    pub summarize: bool,
    /// Files too.
    #[arg(short, long)]
    pub all: bool,
    /// Only what lies no deeper than N below each URL; all of it is summed up.
    #[arg(short = 'd', long, value_name = "N", conflicts_with = "summarize")]
    pub max_depth: Option<usize>,
    /// The sum of all at the end.
    #[arg(short = 'c', long)]
    pub total: bool,
    /// The bytes that files say they have, and not the disk space.
    #[arg(long)]
    pub apparent_size: bool,
    /// The same, in bytes and not in KiB.
    #[arg(short, long)]
    pub bytes: bool,
    /// Sizes in KiB, MiB, GiB.
    #[arg(short = 'h', short_alias = 'H', long)]
    pub human_readable: bool,
    /// One JSON object a line, with its size in bytes; the sum of -c has no path.
    #[arg(long)]
    pub json: bool,
    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
}

/// Find files below directories, as find does.
///
/// The options may be written with one dash, as find has them.
#[derive(Debug, clap::Args)]
pub struct Find {
    /// Where to begin.
    #[arg(required = true, value_name = "URL")]
    pub urls: Vec<Given>,
    /// Only names that match the pattern, byte by byte: * ? [a-z] [!a-z].
    #[arg(long, value_name = "GLOB", allow_hyphen_values = true)]
    pub name: Option<OsString>,
    /// Only files of these kinds: f d l c b p s, with commas between them.
    #[arg(long = "type", value_name = "LETTERS", value_delimiter = ',', value_parser = kind_letter)]
    pub kinds: Vec<FileType>,
    /// No deeper than N below where it began.
    #[arg(long, value_name = "N")]
    pub maxdepth: Option<usize>,
    /// Not less deep than N.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub mindepth: usize,
    /// Names end in a NUL and not in a newline.
    #[arg(long)]
    pub print0: bool,
    /// Names end in a newline, as they do anyway.
    #[arg(long, hide = true, conflicts_with = "print0")]
    pub print: bool,
    /// One JSON object a line, with all attributes.
    #[arg(long)]
    pub json: bool,
}

/// A kind of file by find(1)'s letter.
fn kind_letter(text: &str) -> Result<FileType, String> {
    Ok(match text {
        "f" => FileType::File,
        "d" => FileType::Dir,
        "l" => FileType::Symlink,
        "c" => FileType::CharDevice,
        "b" => FileType::BlockDevice,
        "p" => FileType::Fifo,
        "s" => FileType::Socket,
        _ => return Err("expected letters out of f d l c b p s".to_owned()),
    })
}

/// Write standard input to a file: it appears under its name when it is whole.
///
/// A file that cannot be replaced, such as a device or one of several names, is written in place, with a warning.
#[derive(Debug, clap::Args)]
pub struct Write {
    /// The file; made if there is none.
    pub url: Place,
    /// Add to the end of the file.
    #[arg(short, long)]
    pub append: bool,
    /// Move data in 9P messages, never in streams beside them.
    #[arg(long)]
    pub no_stream: bool,
}

/// Remove files.
#[derive(Debug, clap::Args)]
pub struct Rm {
    /// The files.
    #[arg(required_unless_present = "force", value_name = "URL")]
    pub urls: Vec<Place>,
    /// Directories and all that is in them.
    #[arg(short, short_alias = 'R', long)]
    pub recursive: bool,
    /// Do not complain of what is not there, nor that no file is given.
    #[arg(short, long)]
    pub force: bool,
    /// Empty directories.
    #[arg(short, long)]
    pub dir: bool,
}

/// Rename files, within one tree of one server.
///
/// Where no rename leads, to another directory in 9P2000 and 9P2000.u or to another file system there, the file is copied
/// through here and then removed.
#[derive(Debug, clap::Args)]
pub struct Mv {
    /// The files, and at the end the new name or the directory to move into.
    #[arg(required = true, num_args = 2.., value_name = "URL")]
    pub urls: Vec<Place>,
    /// Leave a file that exists already.
    #[arg(short, long, overrides_with = "force")]
    pub no_clobber: bool,
    /// Replace it, as is done anyway; the last of -f and -n counts.
    #[arg(short, long, overrides_with = "no_clobber")]
    pub force: bool,
}

/// Make directories.
#[derive(Debug, clap::Args)]
pub struct Mkdir {
    /// The directories.
    #[arg(required = true, value_name = "URL")]
    pub urls: Vec<Place>,
    /// Those above them too; one that exists is no error.
    #[arg(short, long)]
    pub parents: bool,
    /// Permissions: octal, or as chmod has them.
    #[arg(short, long, value_name = "MODE")]
    pub mode: Option<String>,
}

/// Make links; not in 9P2000.
#[derive(Debug, clap::Args)]
pub struct Ln {
    /// Symbolic: TARGET is a text.
    #[arg(short, long)]
    pub symbolic: bool,
    /// What the link points to: a URL, or with -s any text.
    pub target: String,
    /// The link to make, or the directory to make it in.
    #[arg(value_name = "URL")]
    pub link: Place,
    /// Replace a file that exists already.
    #[arg(short, long)]
    pub force: bool,
    /// A link at URL that leads to a directory is itself what is there: -sfn replaces it.
    #[arg(short, long)]
    pub no_dereference: bool,
}

/// Change permissions.
///
/// Through a symbolic link that is given; -R leaves those that it finds alone. In 9P2000 a link is what it leads to.
#[derive(Debug, clap::Args)]
pub struct Chmod {
    /// Octal, or symbolic: u+x,go-w.
    #[arg(allow_hyphen_values = true)]
    pub mode: String,
    /// The files.
    #[arg(required = true, value_name = "URL")]
    pub urls: Vec<Place>,
    /// Directories and all that is in them.
    #[arg(short = 'R', long)]
    pub recursive: bool,
}

/// Change owners; not in 9P2000.
// `-h` is its namesake's.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Chown {
    /// USER, USER:GROUP, :GROUP, or USER: for the group that USER logs in with: numbers, or names of this machine's users
    /// and groups, which are sent as their numbers.
    pub owner: String,
    /// The files; a symbolic link itself, unless a slash follows it.
    #[arg(required = true, value_name = "URL")]
    pub urls: Vec<Place>,
    /// Directories and all that is in them.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// A symbolic link itself, as is done anyway.
    #[arg(short = 'h', long)]
    pub no_dereference: bool,
    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
}

/// Cut or extend files.
#[derive(Debug, clap::Args)]
pub struct Truncate {
    /// Bytes, or with K, M, G, T (powers of 1024) or KB, MB, GB, TB (of 1000). In front: + adds, - takes away, < at most,
    /// > at least, / down and % up to a multiple.
    #[arg(short, long, value_name = "N", allow_hyphen_values = true)]
    pub size: String,
    /// Do not make a file that is not there.
    #[arg(short = 'c', long)]
    pub no_create: bool,
    /// The files.
    #[arg(required = true, value_name = "URL")]
    pub urls: Vec<Place>,
}

/// Copy files between here and servers, and between servers.
///
/// A file appears under its name when it is whole: it is written under a temporary name beside it,
/// .NAME.XXXXXXXX.ninefold-part, then renamed. Devices, files with several names and files that cannot be replaced are
/// written in place, and cp says so. Nothing waits until it is on a disk.
///
/// DST is a directory to copy into, or the new name of the one SRC; a SRC that ends in /. gives what is in it. With -r
/// links are copied as links, special files as such, devices for their owner alone unless -p is given. In a directory
/// that is copied to, no link is gone through, and one where a file is to be is replaced. A fifo of this machine that is
/// named is read to its end without -r: cp /dev/stdin URL.
///
/// An interrupted copy leaves its temporary file where it cannot remove it, and on purpose with --resume. --resume goes on
/// with it if its source is the same file at the same address, with the size and time that it had then, and the end of
/// what is there is the source's; of what was sent to a server in messages, the last 32 MiB are sent again. Give --resume to a
/// copy to a server from the beginning: without it the temporary file has a random name, and is not gone on with. What goes by
/// several streams at a time is gone on with so, too: in the temporary file is a record of what is there. --resume leaves
/// files that are there and have the size of their source and, with -p, its time, or without -p a time that is not before
/// its. After a crash of the machine that is copied to, and where that is not enough, add --checksum.
///
/// A file that changes while it is read is copied once more, as it is then. One that changes again is not copied, unless it only
/// grew: then it is copied up to the size that it had, with a warning. One that ends before the size that it had is not copied.
#[derive(Debug, clap::Args)]
pub struct Cp {
    /// What to copy, and at the end where to: local paths or URLs.
    #[arg(required = true, num_args = 2.., value_name = "PLACE")]
    pub places: Vec<Place>,
    /// Directories and all that is in them.
    #[arg(short, short_alias = 'R', long)]
    pub recursive: bool,
    /// Keep permissions, times, and owners where that is allowed; no extended attributes and no access control lists.
    #[arg(short, long)]
    pub preserve: bool,
    /// Files at a time; without it 8, and of small ones so many that a tree takes as long as it is deep.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: Option<u16>,
    /// Go on where an interrupted copy ended, and leave what is there already.
    #[arg(long)]
    pub resume: bool,
    /// Read every file back and compare (XXH3, 128 bits) before it gets its name; with --resume, compare what is there by
    /// its content and not by its time.
    #[arg(long)]
    pub checksum: bool,
    /// Move data in 9P messages, never in streams beside them.
    #[arg(long)]
    pub no_stream: bool,
    /// Streams of one large file at a time, at most: as many are used as make it faster.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub streams: u16,
    /// Say what would be done.
    #[arg(long)]
    pub dry_run: bool,
    /// Copy only files that match; may be repeated. Directories are made all the same.
    ///
    /// A GLOB without a / is compared with a file's name, one with a / with its path below SRC, from the start. * and ? do
    /// not match a /, ** does.
    #[arg(long, value_name = "GLOB", action = ArgAction::Append)]
    pub include: Vec<String>,
    /// Leave out what matches, with all that is in it, even if it is included; may be repeated.
    ///
    /// A GLOB is compared as with --include; one that ends in a / means directories only.
    #[arg(long, value_name = "GLOB", action = ArgAction::Append)]
    pub exclude: Vec<String>,
    /// No progress bar.
    #[arg(short, long)]
    pub quiet: bool,
    /// One JSON object for each file, and one for the whole.
    #[arg(long)]
    pub json: bool,
}
