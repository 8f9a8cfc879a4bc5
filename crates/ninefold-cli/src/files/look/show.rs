//! How attributes are written: modes, sizes and times, as ls(1) and stat(1) of GNU write them.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ninefold::client::{FileType, Metadata};
use ninefold::proto::attr::Time;

/// Bytes of a block, where the dialect tells only sizes: what ext4, xfs and tmpfs have.
const BLOCK: u64 = 4096;

/// Bytes of st_blocks' unit (stat(2)).
const SECTOR: u64 = 512;

/// A mode as ls(1) has it: `drwxr-xr-x`.
pub fn mode(kind: FileType, mode: u32) -> String {
    let mut text = String::from(letter(kind));
    for (shift, special, letters) in [(6, 0o4000, ['s', 'S']), (3, 0o2000, ['s', 'S']), (0, 0o1000, ['t', 'T'])] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letters[0],
            (true, false) => letters[1],
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// The first letter of it.
pub fn letter(kind: FileType) -> char {
    match kind {
        FileType::File => '-',
        FileType::Dir => 'd',
        FileType::Symlink => 'l',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
    }
}

/// The bytes that a file takes on the disk. 9P2000 and .u do not tell: there a plain file is taken to fill blocks of
/// 4 KiB, a directory to have one, as on ext4, and anything else none.
pub fn disk(metadata: &Metadata) -> u64 {
    match (metadata.blocks, metadata.kind) {
        (Some(blocks), _) => blocks.saturating_mul(SECTOR),
        (None, FileType::File) => metadata.size.div_ceil(BLOCK).saturating_mul(BLOCK),
        (None, FileType::Dir) => BLOCK,
        (None, _) => 0,
    }
}

/// Bytes as `-h` of ls(1) and du(1) writes them: up to 1023 as they are, then in powers of 1024, rounded up.
pub fn human(bytes: u64) -> String {
    let mut unit = 1_u128;
    let mut letters = "KMGTPEZ".chars();
    let mut letter = None;
    let bytes = u128::from(bytes);
    // In the next unit what would be written as 1024 of this.
    while bytes > unit * 1023 {
        unit *= 1024;
        letter = letters.next();
    }
    let Some(letter) = letter else { return bytes.to_string() };
    let tenths = (bytes * 10).div_ceil(unit);
    if tenths < 100 {
        format!("{}.{}{letter}", tenths / 10, tenths % 10)
    } else {
        format!("{}{letter}", bytes.div_ceil(unit))
    }
}

/// Bytes in KiB, rounded up.
pub fn kib(bytes: u64) -> String {
    bytes.div_ceil(1024).to_string()
}

/// How ls -l writes a time: the styles of ls(1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum TimeStyle {
    /// `Jan 31 23:59`, and `Jan 31  2020` for what is over six months old.
    Locale,
    /// `01-31 23:59`, and `2020-01-31` likewise.
    Iso,
    /// `2020-01-31 23:59`.
    LongIso,
    /// `2020-01-31 23:59:59.123456789 +0000`.
    FullIso,
}

impl TimeStyle {
    /// The one of the environment (`TIME_STYLE`), else ls(1)'s own.
    pub fn from_env() -> TimeStyle {
        match std::env::var("TIME_STYLE").as_deref() {
            Ok("iso") => TimeStyle::Iso,
            Ok("long-iso") => TimeStyle::LongIso,
            Ok("full-iso") => TimeStyle::FullIso,
            _ => TimeStyle::Locale,
        }
    }
}

/// Seconds that ls(1) takes for half a year.
const HALF_A_YEAR: i64 = 31_556_952 / 2;

/// Writes times in one time zone, this machine's (`TZ`).
#[derive(Clone, Debug)]
pub struct Clock(TimeZone);

impl Clock {
    pub fn local() -> Clock {
        Clock(TimeZone::system())
    }

    #[cfg(test)]
    pub fn fixed(zone: TimeZone) -> Clock {
        Clock(zone)
    }

    /// As ls -l has it.
    pub fn brief(&self, time: Time, style: TimeStyle) -> String {
        self.brief_at(time, style, Timestamp::now())
    }

    fn brief_at(&self, time: Time, style: TimeStyle, now: Timestamp) -> String {
        let at = |time: Timestamp| (time.as_second(), time.subsec_nanosecond().unsigned_abs());
        let (when, now) = ((time.sec, time.nsec), at(now));
        let recent = (now.0 - HALF_A_YEAR, now.1) < when && when < now;
        let format = match (style, recent) {
            (TimeStyle::Locale, true) => "%b %e %H:%M",
            (TimeStyle::Locale, false) => "%b %e  %Y",
            (TimeStyle::Iso, true) => "%m-%d %H:%M",
            (TimeStyle::Iso, false) => "%Y-%m-%d ",
            (TimeStyle::LongIso, _) => "%Y-%m-%d %H:%M",
            (TimeStyle::FullIso, _) => return self.full(time),
        };
        // What no calendar reaches is written in seconds, as ls(1) does.
        self.write(time, format).unwrap_or_else(|| time.sec.to_string())
    }

    /// To the nanosecond and with the zone, as stat(1) has it.
    pub fn full(&self, time: Time) -> String {
        let whole = self.write(time, "%Y-%m-%d %H:%M:%S").zip(self.write(time, "%z"));
        whole.map_or_else(
            || format!("{}.{:09}", time.sec, time.nsec),
            |(seconds, zone)| format!("{seconds}.{:09} {zone}", time.nsec),
        )
    }

    fn write(&self, time: Time, format: &str) -> Option<String> {
        let at = Timestamp::from_second(time.sec).ok()?;
        jiff::fmt::strtime::format(format, &at.to_zoned(self.0.clone())).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_written_with_its_kind_and_its_special_bits() {
        let cases = [
            (FileType::File, 0o644, "-rw-r--r--"),
            (FileType::Dir, 0o1777, "drwxrwxrwt"),
            (FileType::Dir, 0o1770, "drwxrwx--T"),
            (FileType::File, 0o4755, "-rwsr-xr-x"),
            (FileType::File, 0o6600, "-rwS--S---"),
            (FileType::File, 0o2711, "-rwx--s--x"),
            (FileType::Symlink, 0o777, "lrwxrwxrwx"),
            (FileType::CharDevice, 0, "c---------"),
            (FileType::BlockDevice, 0o600, "brw-------"),
            (FileType::Fifo, 0o600, "prw-------"),
            (FileType::Socket, 0o600, "srw-------"),
        ];
        for (kind, bits, text) in cases {
            assert_eq!(mode(kind, bits), text);
        }
    }

    #[test]
    fn a_size_for_people_is_rounded_up_to_two_digits() {
        let cases = [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10 * 1024 - 1, "10K"),
            (10 * 1024 + 1, "11K"),
            (1023 * 1024, "1023K"),
            (1023 * 1024 + 1, "1.0M"),
            (20_000_000_000, "19G"),
            (i64::MAX as u64, "8.0E"),
            (u64::MAX, "16E"),
        ];
        for (bytes, text) in cases {
            assert_eq!(human(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn a_time_is_written_in_its_zone_and_one_out_of_every_calendar_in_seconds() {
        let utc = Clock(TimeZone::UTC);
        let time = Time { sec: 1_577_934_245, nsec: 123 };
        assert_eq!(utc.full(time), "2020-01-02 03:04:05.000000123 +0000");
        assert_eq!(utc.full(Time { sec: -1, nsec: 5 }), "1969-12-31 23:59:59.000000005 +0000");
        let east = Clock(TimeZone::fixed(jiff::tz::offset(5).saturating_add(jiff::SignedDuration::from_mins(30))));
        assert_eq!(east.full(time), "2020-01-02 08:34:05.000000123 +0530");
        let far = Time { sec: i64::MAX, nsec: 7 };
        assert_eq!(utc.brief(far, TimeStyle::LongIso), "9223372036854775807");
        assert_eq!(utc.full(far), "9223372036854775807.000000007");
    }

    #[test]
    fn ls_tells_the_hour_of_half_a_year_and_the_year_of_what_is_older_or_to_come() {
        let utc = Clock(TimeZone::UTC);
        let now = Timestamp::new(1_577_934_245, 500).unwrap();
        let at = |sec, nsec, style| utc.brief_at(Time { sec: 1_577_934_245 + sec, nsec }, style, now);
        use TimeStyle::{FullIso, Iso, Locale, LongIso};
        assert_eq!(at(0, 499, Locale), "Jan  2 03:04");
        assert_eq!(at(0, 500, Locale), "Jan  2  2020");
        assert_eq!(at(-HALF_A_YEAR, 501, Locale), "Jul  3 12:09");
        assert_eq!(at(-HALF_A_YEAR, 500, Locale), "Jul  3  2019");
        assert_eq!(at(-60, 0, Iso), "01-02 03:03");
        assert_eq!(at(60, 0, Iso), "2020-01-02 ");
        assert_eq!(at(60, 0, LongIso), "2020-01-02 03:05");
        assert_eq!(at(60, 7, FullIso), "2020-01-02 03:05:05.000000007 +0000");
    }
}
