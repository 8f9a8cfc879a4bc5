//! The units that people write on a command line: times, rates, sizes and shares; and one value for both directions or two.
//!
//! Each type is parsed with `FromStr`; what it holds was checked then.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The longest time that a link may hold a packet back: longer than any path has, and sums of a few stay far from an overflow.
pub const TIME_MAX: Duration = Duration::from_secs(60);

/// Bits in a second that a link may carry at most; above it the time of a packet is below what the clock tells.
pub const RATE_MAX: u64 = 1_000_000_000_000;

/// Bytes that a queue may hold at most.
pub const SIZE_MAX: u64 = 1 << 30;

/// A number and the unit behind it.
fn split(text: &str) -> Option<(f64, &str)> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    Some((number.parse().ok()?, unit.trim()))
}

/// A time of at most a minute: `50ms`, `0.5ms`, `250us`, `1s`, and `0`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Time(pub Duration);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Time, String> {
        let wrong = || format!("'{text}' is no time: expected a number and s, ms or us, as in 50ms");
        let (number, unit) = split(text).ok_or_else(wrong)?;
        let seconds = match unit {
            "s" => number,
            "ms" => number / 1e3,
            "us" => number / 1e6,
            "" if number == 0.0 => 0.0,
            _ => return Err(wrong()),
        };
        if seconds > TIME_MAX.as_secs_f64() {
            return Err(format!("'{text}' is more than {} s", TIME_MAX.as_secs()));
        }
        Ok(Time(Duration::from_secs_f64(seconds)))
    }
}

/// A rate, in bits in a second: `1gbit`, `10mbit`, `64kbit`; `none` is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate(pub Option<u64>);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        if text == "none" {
            return Ok(Rate(None));
        }
        let wrong =
            || format!("'{text}' is no rate: expected a number and bit, kbit, mbit or gbit, as in 10mbit, or none");
        let (number, unit) = split(text).ok_or_else(wrong)?;
        let bits = match unit {
            "bit" => number,
            "kbit" => number * 1e3,
            "mbit" => number * 1e6,
            "gbit" => number * 1e9,
            _ => return Err(wrong()),
        };
        if !(1.0..=RATE_MAX as f64).contains(&bits) {
            return Err(format!("'{text}' is not within 1bit and 1000gbit: to carry nothing, cut the link"));
        }
        Ok(Rate(Some(bits.round() as u64)))
    }
}

/// A share of all packets: `1%`, `0.1%`, `0`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Share(pub f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let wrong = || format!("'{text}' is no share of the packets: expected 0% to 100%, as in 0.1%");
        let (number, unit) = split(text).ok_or_else(wrong)?;
        match unit {
            "%" if number <= 100.0 => Ok(Share(number / 100.0)),
            "" if number == 0.0 => Ok(Share(0.0)),
            _ => Err(wrong()),
        }
    }
}

/// How much may wait in front of a link: `100p` packets, `64k`, `2m` or `9000b` bytes, `auto`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Queue {
    /// What a round trip carries at the link's rate, and never less than 100 packets of 1500 bytes.
    #[default]
    Auto,
    /// Bytes of IP packets.
    Bytes(u64),
    Packets(u64),
}

impl FromStr for Queue {
    type Err = String;

    fn from_str(text: &str) -> Result<Queue, String> {
        if text == "auto" {
            return Ok(Queue::Auto);
        }
        let wrong =
            || format!("'{text}' is no queue: expected packets as in 100p, bytes as in 9000b, 64k or 2m, or auto");
        let (number, unit) = split(text).ok_or_else(wrong)?;
        let scale = match unit {
            "p" | "b" => 1.0,
            "k" => 1024.0,
            "m" => 1024.0 * 1024.0,
            _ => return Err(wrong()),
        };
        let number = number * scale;
        if number > SIZE_MAX as f64 {
            return Err(format!("'{text}' is more than {SIZE_MAX}"));
        }
        if number.fract() != 0.0 {
            return Err(format!("'{text}' is not a whole number of packets or bytes"));
        }
        let number = number as u64;
        Ok(if unit == "p" { Queue::Packets(number) } else { Queue::Bytes(number) })
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Queue::Auto => write!(f, "auto"),
            Queue::Bytes(bytes) => write!(f, "{bytes}b"),
            Queue::Packets(packets) => write!(f, "{packets}p"),
        }
    }
}

/// One value for both directions, or two with a comma: the first towards the server, the second towards the client. An empty one
/// stays as it is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Both<T> {
    pub to_server: Option<T>,
    pub to_client: Option<T>,
}

impl<T: FromStr<Err = String> + Copy> FromStr for Both<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Both<T>, String> {
        let one = |text: &str| -> Result<Option<T>, String> {
            if text.is_empty() { Ok(None) } else { text.parse().map(Some) }
        };
        match text.split_once(',') {
            Some((to_server, to_client)) => Ok(Both { to_server: one(to_server)?, to_client: one(to_client)? }),
            None => {
                let value = text.parse()?;
                Ok(Both { to_server: Some(value), to_client: Some(value) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_rates_shares_and_queues_are_numbers_with_a_unit() {
        let time = |text: &str| text.parse::<Time>().map(|time| time.0.as_micros());
        assert_eq!(time("50ms"), Ok(50_000));
        assert_eq!(time("0.25ms"), Ok(250));
        assert_eq!(time("7us"), Ok(7));
        assert_eq!(time("60s"), Ok(60_000_000));
        assert_eq!(time("0"), Ok(0));
        assert_eq!("10mbit".parse(), Ok(Rate(Some(10_000_000))));
        assert_eq!("1.5gbit".parse(), Ok(Rate(Some(1_500_000_000))));
        assert_eq!("none".parse(), Ok(Rate(None)));
        assert_eq!("0.1%".parse(), Ok(Share(0.001)));
        assert_eq!("100%".parse(), Ok(Share(1.0)));
        assert_eq!("100p".parse(), Ok(Queue::Packets(100)));
        assert_eq!("64k".parse(), Ok(Queue::Bytes(65_536)));
        assert_eq!("1.5k".parse(), Ok(Queue::Bytes(1536)));
        assert_eq!("auto".parse(), Ok(Queue::Auto));
    }

    #[test]
    fn what_has_no_unit_or_is_out_of_bounds_is_refused() {
        for text in ["", "50", "ms", "-1ms", "1h", "61s", "1.2.3s", "infs", "NaN"] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
        for text in ["", "0bit", "10", "1001gbit", "10mb", "-1mbit"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        for text in ["", "1", "101%", "-1%", "%"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
        for text in ["", "100", "2048m", "p", "1.5p", "0.3b"] {
            assert!(text.parse::<Queue>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_comma_parts_the_two_directions_and_an_empty_one_stays_as_it_is() {
        let both = |text: &str| text.parse::<Both<Share>>().map(|both| (both.to_server, both.to_client));
        assert_eq!(both("1%"), Ok((Some(Share(0.01)), Some(Share(0.01)))));
        assert_eq!(both("1%,0"), Ok((Some(Share(0.01)), Some(Share(0.0)))));
        assert_eq!(both(",2%"), Ok((None, Some(Share(0.02)))));
        assert!(both("1%,2%,3%").is_err());
        assert!(both("").is_err());
    }
}
