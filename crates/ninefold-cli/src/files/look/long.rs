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

/// The fields of a line, as text; the time last.
struct Fields {
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

/// How wide the columns of files that are listed together are.
#[derive(Clone, Copy, Default, Debug)]
pub struct Widths {
    nlink: usize,
    user: usize,
    group: usize,
    /// Without a device.
    size: usize,
    major: usize,
    minor: usize,
    time: usize,
}

impl Widths {
    fn widen(&mut self, fields: &Fields) {
        let (size, major, minor) = match &fields.size {
            Size::Bytes(bytes) => (bytes.len(), 0, 0),
            Size::Device(major, minor) => (0, major.len(), minor.len()),
        };
        self.nlink = self.nlink.max(fields.nlink.len());
        self.user = self.user.max(fields.user.width());
        self.group = self.group.max(fields.group.width());
        self.size = self.size.max(size);
        self.major = self.major.max(major);
        self.minor = self.minor.max(minor);
        self.time = self.time.max(fields.time.len());
    }

    /// The numbers of a device with `, ` between them.
    fn device(&self) -> usize {
        if self.major > 0 { self.major + 2 + self.minor } else { 0 }
    }
}

impl Long {
    /// Looks at all that is listed together, and learns whose it is.
    pub async fn measure(&mut self, items: impl Iterator<Item = &Item> + Clone) -> Widths {
        self.owners.learn(items.clone().filter_map(Item::metadata)).await;
        // ls(1) measures the column of times with no file at hand.
        let time = self.clock.brief(Time::default(), self.times).len();
        let mut widths = Widths { time, ..Widths::default() };
        items.for_each(|item| widths.widen(&self.fields(item)));
        widths
    }

    /// The line of a file.
    pub fn line(&self, item: &Item, widths: &Widths) -> Vec<u8> {
        let fields = self.fields(item);
        let Widths { nlink, user, group, major, minor, time, .. } = *widths;
        let device = widths.device();
        let size = widths.size.max(device);
        let mut out = format!("{} {:>nlink$} ", fields.mode, fields.nlink).into_bytes();
        fields.user.put(&mut out, user);
        fields.group.put(&mut out, group);
        let text = match &fields.size {
            Size::Bytes(bytes) => format!("{bytes:>size$}"),
            Size::Device(its_major, its_minor) => {
                // What the column has to spare goes in front.
                let major = major + size - device;
                format!("{its_major:>major$}, {its_minor:>minor$}")
            }
        };
        out.extend_from_slice(format!("{text} {:>time$} ", fields.time).as_bytes());
        out.extend(self.names.show(&item.name));
        if let Some(Ok(target)) = &item.target {
            out.extend_from_slice(b" -> ");
            out.extend(self.names.show(target));
        }
        out.push(b'\n');
        out
    }

    /// `total` and the disk space of files that are listed together.
    pub fn total(&self, items: &[Item]) -> String {
        let bytes = items.iter().filter_map(Item::metadata).map(show::disk).fold(0, u64::saturating_add);
        format!("total {}\n", if self.human { show::human(bytes) } else { show::kib(bytes) })
    }

    fn fields(&self, item: &Item) -> Fields {
        let Attributes::Known(metadata) = &item.attributes else {
            let unknown = || Field::Left(UNKNOWN.into());
            return Fields {
                mode: format!("{}{}", show::letter(item.kind), UNKNOWN.repeat(9)),
                nlink: UNKNOWN.to_owned(),
                user: unknown(),
                group: unknown(),
                size: Size::Bytes(UNKNOWN.to_owned()),
                time: UNKNOWN.to_owned(),
            };
        };
        Fields {
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

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;
    use ninefold::client::{Error, FileType, Metadata};
    use ninefold::proto::{Errno, Qid};

    use super::*;
    use crate::files::sample;

    fn item(name: &str, attributes: Attributes) -> Item {
        let (name, kind) = (name.as_bytes().to_vec(), FileType::File);
        Item { name, kind, qid: Qid::default(), attributes, target: None, descends: false }
    }

    fn known(name: &str, change: impl FnOnce(&mut Metadata)) -> Item {
        let modified = Time { sec: 1_577_934_245, nsec: 0 };
        let mut metadata = Metadata { size: 12345, modified, ..sample::metadata() };
        change(&mut metadata);
        item(name, Attributes::Known(Box::new(metadata)))
    }

    #[tokio::test]
    async fn columns_are_as_wide_as_their_widest_field_and_what_is_not_told_is_a_question_mark() {
        let mut long = Long {
            names: Names::Tame,
            human: false,
            owners: Owners::default(),
            clock: Clock::fixed(TimeZone::UTC),
            times: TimeStyle::LongIso,
        };
        let mut link = known("link", |link| (link.kind, link.size) = (FileType::Symlink, 3));
        link.target = Some(Ok(b"a\x1bb".to_vec()));
        let items = [
            known("nothing told", |_| {}),
            known("owned", |file| {
                (file.nlink, file.size) = (Some(12), 7);
                (file.owner, file.group) = (Some(b"glenda".to_vec()), Some(b"4294967294".to_vec()));
            }),
            known("device", |file| {
                (file.kind, file.device, file.blocks) = (FileType::BlockDevice, Some((259, 65536)), Some(u64::MAX));
            }),
            link,
            item("gone", Attributes::Failed(Error::from(Errno::ENOENT))),
        ];
        let widths = long.measure(items.iter()).await;
        let lines: Vec<String> =
            items.iter().map(|item| String::from_utf8(long.line(item, &widths)).unwrap()).collect();
        let expected = [
            "-rw-r--r--  ? ?      ?               12345 2020-01-02 03:04 nothing told\n",
            "-rw-r--r-- 12 glenda 4294967294          7 2020-01-02 03:04 owned\n",
            "brw-r--r--  ? ?      ?          259, 65536 2020-01-02 03:04 device\n",
            "lrw-r--r--  ? ?      ?                   3 2020-01-02 03:04 link -> a?b\n",
            "-?????????  ? ?      ?                   ?                ? gone\n",
        ];
        assert_eq!(lines, expected);
        // Bytes beyond all numbers, and not a crash.
        assert_eq!(long.total(&items), format!("total {}\n", u64::MAX.div_ceil(1024)));
        assert_eq!(long.total(&items[..2]), "total 20\n");
    }
}
