//! ls -l: one line a file, in columns as wide as their widest field, byte for byte as GNU's ls aligns them.

use ninefold::proto::attr::Time;

use super::names::Names;
use super::owners::{Owners, Who};
use super::show::{self, Clock, TimeStyle};
use super::tree::{Attributes, Item};

/// What stands for a field that the dialect, or the server, does not tell.
const UNKNOWN: &str = "?";

/// How ls -l writes.
#[derive(Debug)]
pub struct Long {
    pub names: Names,
    pub human: bool,
    pub owners: Owners,
    pub clock: Clock,
    pub times: TimeStyle,
}

/// The fields of a line, as text.
struct Line<'a> {
    item: &'a Item,
    mode: String,
    nlink: String,
    user: Field,
    group: Field,
    size: Size,
    time: String,
}

/// A name stands at the left of its column, a number at the right.
enum Field {
    Left(Vec<u8>),
    Right(String),
}

enum Size {
    Bytes(String),
    Device(String, String),
}

impl Long {
    /// The lines of files that are listed together. `others` have no line, and widen the columns all the same: ls(1)
    /// measures the directories of its command line with the files.
    pub async fn lines(&mut self, items: &[Item], others: &[&Item]) -> Vec<u8> {
        let all = || items.iter().chain(others.iter().copied());
        self.owners.learn(all().filter_map(Item::metadata)).await;
        let lines: Vec<Line<'_>> = all().map(|item| self.line(item)).collect();
        let widest = |width: &dyn Fn(&Line<'_>) -> usize| lines.iter().map(width).max().unwrap_or(0);
        let nlink = widest(&|line| line.nlink.len());
        let user = widest(&|line| line.user.width());
        let group = widest(&|line| line.group.width());
        let major = widest(&|line| line.size.numbers().0);
        let minor = widest(&|line| line.size.numbers().1);
        // `, ` between the numbers of a device.
        let device = if major + minor > 0 { major + 2 + minor } else { 0 };
        let size = widest(&|line| line.size.bytes()).max(device);
        // ls(1) measures the column with no file at hand.
        let time = widest(&|line| line.time.len()).max(self.clock.brief(Time::default(), self.times).len());
        let mut out = Vec::new();
        for line in lines.iter().take(items.len()) {
            out.extend_from_slice(format!("{} {:>nlink$} ", line.mode, line.nlink).as_bytes());
            line.user.put(&mut out, user);
            line.group.put(&mut out, group);
            let text = match &line.size {
                Size::Bytes(bytes) => format!("{bytes:>size$}"),
                Size::Device(its_major, its_minor) => {
                    // What the column has to spare goes in front.
                    let major = major + size - device;
                    format!("{its_major:>major$}, {its_minor:>minor$}")
                }
            };
            out.extend_from_slice(format!("{text} {:>time$} ", line.time).as_bytes());
            out.extend(self.names.show(&line.item.name));
            if let Some(Ok(target)) = &line.item.target {
                out.extend_from_slice(b" -> ");
                out.extend(self.names.show(target));
            }
            out.push(b'\n');
        }
        out
    }

    /// `total` and the disk space of files that are listed together.
    pub fn total(&self, items: &[Item]) -> String {
        let bytes = items.iter().filter_map(Item::metadata).map(show::disk).fold(0, u64::saturating_add);
        format!("total {}\n", if self.human { show::human(bytes) } else { show::kib(bytes) })
    }

    fn line<'a>(&self, item: &'a Item) -> Line<'a> {
        let Attributes::Known(metadata) = &item.attributes else {
            let unknown = || Field::Left(UNKNOWN.into());
            return Line {
                item,
                mode: format!("{}{}", show::letter(item.kind), UNKNOWN.repeat(9)),
                nlink: UNKNOWN.to_owned(),
                user: unknown(),
                group: unknown(),
                size: Size::Bytes(UNKNOWN.to_owned()),
                time: UNKNOWN.to_owned(),
            };
        };
        Line {
            item,
            mode: show::mode(metadata.kind, metadata.mode),
            nlink: metadata.nlink.map_or(UNKNOWN.to_owned(), |n| n.to_string()),
            user: Field::new(self.owners.user(metadata)),
            group: Field::new(self.owners.group(metadata)),
            size: match metadata.device {
                Some((major, minor)) => Size::Device(major.to_string(), minor.to_string()),
                None if self.human => Size::Bytes(show::human(metadata.size)),
                None => Size::Bytes(metadata.size.to_string()),
            },
            time: self.clock.brief(metadata.modified, self.times),
        }
    }
}

impl Field {
    fn new(who: Who) -> Field {
        match who {
            Who::Name(name) => Field::Left(name),
            Who::Number(number) => Field::Right(number.to_string()),
            Who::Unknown => Field::Left(UNKNOWN.into()),
        }
    }

    fn width(&self) -> usize {
        match self {
            Field::Left(name) => name.len(),
            Field::Right(number) => number.len(),
        }
    }

    fn put(&self, out: &mut Vec<u8>, width: usize) {
        let blanks = vec![b' '; width - self.width().min(width)];
        match self {
            Field::Left(name) => out.extend([name.as_slice(), &blanks, b" "].concat()),
            Field::Right(number) => out.extend([&blanks, number.as_bytes(), b" "].concat()),
        }
    }
}

impl Size {
    fn bytes(&self) -> usize {
        match self {
            Size::Bytes(bytes) => bytes.len(),
            Size::Device(..) => 0,
        }
    }

    fn numbers(&self) -> (usize, usize) {
        match self {
            Size::Bytes(_) => (0, 0),
            Size::Device(major, minor) => (major.len(), minor.len()),
        }
    }
}
