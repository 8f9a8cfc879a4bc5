//! Where a server is: [`Address`], parsed from and displayed in one syntax.
//!
//! | Address | Place |
//! |---|---|
//! | `9p://HOST[:PORT][/PATH]` | TCP, port 5640 when none is given; an IPv6 address in brackets |
//! | `9ps://HOST[:PORT][/PATH]` | the same over TLS; `?pin=sha256:DIGITS` takes the server with that certificate and no other ([`Pin`]) |
//! | `9p+unix:/SOCKET[:/PATH]` | a Unix socket |
//! | `9p+ssh://[USER@]HOST[/PATH]` | PATH on HOST, by `ninefold serve --stdio /` run there through ssh |
//! | `HOST:/PATH` | short for `9p+ssh://HOST/PATH`, as scp and sshfs have it; nothing in it is decoded |
//!
//! `?aname=NAME&dialect=9P2000.u` may follow. In every form but the short one `%HH` stands for a byte: in the query,
//! in PATH, and in SOCKET, where `%3A` writes a `:` that a `/` follows and `%3F` a `?`.

use std::ffi::OsStr;
use std::fmt;
use std::net::Ipv6Addr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;

use ninefold_proto::dialect::Version;

use super::tls::Pin;

/// TCP port of an address that names none: the next above 564, which is 9P's own and needs root.
pub const PORT: u16 = 5640;

/// Where a server is, and how to attach there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    pub place: Place,
    /// The file meant: empty, or bytes that begin with `/`.
    pub path: Vec<u8>,
    /// The attach name asked for.
    pub aname: Option<Vec<u8>>,
    /// The dialect asked for, with its suffixes; the best common one when there is none.
    pub dialect: Option<Version>,
}

/// How a server is reached.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    Tcp {
        /// A name, an IPv4 address or an IPv6 address without brackets.
        host: String,
        port: u16,
    },
    Tls {
        host: String,
        port: u16,
        /// The server's certificate; `None`: one that an authority of this machine has signed.
        pin: Option<Pin>,
    },
    Unix {
        /// Absolute.
        socket: PathBuf,
    },
    Ssh {
        user: Option<String>,
        host: String,
    },
}

/// Why a text is not an [`Address`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadAddress {
    #[error(
        "'{0}' is no address: expected 9p://HOST[:PORT][/PATH], 9p+unix:/SOCKET[:/PATH], 9p+ssh://[USER@]HOST[/PATH] or HOST:/PATH"
    )]
    Form(String),
    #[error("'{text}': scheme '{scheme}' is not known: expected 9p, 9ps, 9p+unix or 9p+ssh")]
    Scheme { text: String, scheme: String },
    #[error("'{0}': the host is missing: expected a name or a number; 0.0.0.0 or [::] stand for every address")]
    NoHost(String),
    #[error("'{text}': '{host}' is no host: expected a name, a number, or an IPv6 address in brackets")]
    Host { text: String, host: String },
    #[error("'{text}': '{user}' is no user name: it is empty or begins with '-'")]
    User { text: String, user: String },
    #[error("'{text}': '{port}' is no port: expected 0 to 65535")]
    Port { text: String, port: String },
    #[error("'{0}': the socket's path must be absolute: expected 9p+unix:/SOCKET[:/PATH]")]
    Socket(String),
    #[error("'{0}': '%' must be followed by two hexadecimal digits, and %00 names nothing")]
    Percent(String),
    #[error("'{text}': '{pin}' pins nothing: expected sha256: and 64 hexadecimal digits, behind a 9ps:// address")]
    Pin { text: String, pin: String },
    #[error(
        "'{text}': '{key}' is not known behind '?': expected aname=NAME, dialect=NAME, or pin=sha256:DIGITS, each once"
    )]
    Query { text: String, key: String },
    #[error(
        "'{text}': '{dialect}' is no dialect: expected 9P2000, 9P2000.u or 9P2000.L, or one of the first two with .ix behind"
    )]
    Dialect { text: String, dialect: String },
}

/// Schemes of addresses; anything else with `://` in it is a local name, however odd.
const SCHEMES: [&str; 4] = ["9p://", "9ps://", "9p+ssh://", "9p+unix:"];

impl Address {
    /// Whether a word that names a file is meant as an address: it begins with a scheme, or has a `:/` in front of its first `/`
    /// (`HOST:/PATH`); everything else is a local path. `./` in front makes any word one.
    pub fn is_one(word: &str) -> bool {
        let short = word.find(":/").is_some_and(|at| !word[..at].contains('/') && at > 0);
        short || SCHEMES.iter().any(|scheme| word.starts_with(scheme))
    }

    /// An address with nothing behind the place.
    pub fn new(place: Place) -> Address {
        Address { place, path: Vec::new(), aname: None, dialect: None }
    }

    /// The TCP address of a socket.
    pub fn tcp(at: std::net::SocketAddr) -> Address {
        Address::new(Place::Tcp { host: at.ip().to_string(), port: at.port() })
    }

    /// The address of a Unix socket.
    pub fn unix(socket: impl Into<PathBuf>) -> Address {
        Address::new(Place::Unix { socket: socket.into() })
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Address, BadAddress> {
        let whole = || text.to_owned();
        if let Some(rest) = text.strip_prefix("9p+unix:") {
            return unix(text, rest);
        }
        let Some((scheme, rest)) = text.split_once("://") else { return short(text) };
        if !matches!(scheme, "9p" | "9ps" | "9p+ssh") {
            return Err(BadAddress::Scheme { text: whole(), scheme: scheme.to_owned() });
        }
        let (rest, query) = split_query(rest);
        let at = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let place = match scheme {
            "9p+ssh" => ssh(text, authority)?,
            _ => {
                let (host, port) = host_and_port(text, authority)?;
                if scheme == "9p" { Place::Tcp { host, port } } else { Place::Tls { host, port, pin: None } }
            }
        };
        let mut address = Address { place, path: decode(text, path)?, aname: None, dialect: None };
        address.take_query(text, query)?;
        Ok(address)
    }
}

impl Address {
    fn take_query(&mut self, text: &str, query: Option<&str>) -> Result<(), BadAddress> {
        for pair in query.into_iter().flat_map(|q| q.split('&')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(text, value)?;
            match key {
                "aname" if self.aname.is_none() => self.aname = Some(value),
                "dialect" if self.dialect.is_none() => {
                    let dialect = Version::parse(&value).ok_or_else(|| BadAddress::Dialect {
                        text: text.to_owned(),
                        dialect: String::from_utf8_lossy(&value).into_owned(),
                    })?;
                    self.dialect = Some(dialect);
                }
                "pin" => {
                    let pin = String::from_utf8_lossy(&value);
                    let bad = || BadAddress::Pin { text: text.to_owned(), pin: pin.clone().into_owned() };
                    match &mut self.place {
                        Place::Tls { pin: at @ None, .. } => *at = Some(pin.parse().map_err(|()| bad())?),
                        _ => return Err(bad()),
                    }
                }
                _ => return Err(BadAddress::Query { text: text.to_owned(), key: key.to_owned() }),
            }
        }
        Ok(())
    }
}

fn split_query(rest: &str) -> (&str, Option<&str>) {
    rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)))
}

fn unix(text: &str, rest: &str) -> Result<Address, BadAddress> {
    let (rest, query) = split_query(rest);
    let (socket, path) = rest.find(":/").map_or((rest, ""), |at| (&rest[..at], &rest[at + 1..]));
    if !socket.starts_with('/') {
        return Err(BadAddress::Socket(text.to_owned()));
    }
    let socket = decode(text, socket)?;
    let mut address = Address::unix(OsStr::from_bytes(&socket));
    address.path = decode(text, path)?;
    address.take_query(text, query)?;
    Ok(address)
}

/// `HOST:/PATH` and `USER@HOST:/PATH`, told from a local path by having no `/` in front of the colon.
fn short(text: &str) -> Result<Address, BadAddress> {
    let form = || BadAddress::Form(text.to_owned());
    let at = if text.contains("[") { text.find("]:/").map(|at| at + 1) } else { text.find(":/") }.ok_or_else(form)?;
    let (authority, path) = (&text[..at], &text[at + 1..]);
    // A scheme with a slash too few is a slip, not a host of that name.
    if authority.is_empty() || authority.contains('/') || matches!(authority, "9p" | "9ps" | "9p+ssh") {
        return Err(form());
    }
    Ok(Address { place: ssh(text, authority)?, path: path.as_bytes().to_vec(), aname: None, dialect: None })
}

fn ssh(text: &str, authority: &str) -> Result<Place, BadAddress> {
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    // ssh would take a leading '-' for an option.
    if let Some(user) = user.filter(|user| user.is_empty() || user.starts_with('-')) {
        return Err(BadAddress::User { text: text.to_owned(), user: user.to_owned() });
    }
    Ok(Place::Ssh { user: user.map(str::to_owned), host: checked_host(text, host)? })
}

fn host_and_port(text: &str, authority: &str) -> Result<(String, u16), BadAddress> {
    let colon = authority.rfind(':').filter(|&at| authority.rfind(']').is_none_or(|bracket| bracket < at));
    let (host, port) = colon.map_or((authority, None), |at| (&authority[..at], Some(&authority[at + 1..])));
    let port = match port {
        Some(port) if port.bytes().all(|b| b.is_ascii_digit()) => port.parse().ok(),
        Some(_) => None,
        None => Some(PORT),
    };
    let host = checked_host(text, host)?;
    let wrong = || authority[colon.map_or(0, |at| at + 1)..].to_owned();
    port.map(|port| (host, port)).ok_or_else(|| BadAddress::Port { text: text.to_owned(), port: wrong() })
}

/// The host without its brackets.
fn checked_host(text: &str, host: &str) -> Result<String, BadAddress> {
    if host.is_empty() {
        return Err(BadAddress::NoHost(text.to_owned()));
    }
    let bad = || BadAddress::Host { text: text.to_owned(), host: host.to_owned() };
    if let Some(inner) = host.strip_prefix('[') {
        let inner = inner.strip_suffix(']').ok_or_else(bad)?;
        let (number, zone) = inner.split_once('%').map_or((inner, None), |(number, zone)| (number, Some(zone)));
        let zone_is_good = zone.is_none_or(|zone| !zone.is_empty() && zone.bytes().all(host_byte));
        return if number.parse::<Ipv6Addr>().is_ok() && zone_is_good { Ok(inner.to_owned()) } else { Err(bad()) };
    }
    // ssh would take a leading '-' for an option; no host name begins so (RFC 952).
    let good = !host.starts_with('-') && host.bytes().all(host_byte);
    if good { Ok(host.to_owned()) } else { Err(bad()) }
}

/// Bytes of a host name: what DNS has, `_`, which aliases of ssh have too, and names that are not ASCII.
fn host_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-._".contains(&b) || !b.is_ascii()
}

fn decode(text: &str, part: &str) -> Result<Vec<u8>, BadAddress> {
    let mut out = Vec::with_capacity(part.len());
    let mut left = part.as_bytes();
    while let Some((&b, rest)) = left.split_first() {
        left = rest;
        if b != b'%' {
            out.push(b);
            continue;
        }
        let digit = |i: usize| left.get(i).and_then(|&b| char::from(b).to_digit(16));
        match digit(0).zip(digit(1)).map(|(high, low)| (high << 4 | low) as u8) {
            Some(byte) if byte != 0 => out.push(byte),
            _ => return Err(BadAddress::Percent(text.to_owned())),
        }
        left = &left[2..];
    }
    Ok(out)
}

/// Bytes with `%HH` for those that would read as something else.
struct Encoded<'a>(&'a [u8], &'static [u8]);

impl fmt::Display for Encoded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                let special = c.is_ascii() && self.1.contains(&(c as u8));
                match c {
                    '%' | '?' | ' ' => write!(f, "%{:02X}", c as u32)?,
                    c if special || c.is_ascii_control() => write!(f, "%{:02X}", c as u32)?,
                    c => write!(f, "{c}")?,
                }
            }
            chunk.invalid().iter().try_for_each(|b| write!(f, "%{b:02X}"))?;
        }
        Ok(())
    }
}

/// A host as it stands in an address.
struct Host<'a>(&'a str);

impl fmt::Display for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.contains(':') { write!(f, "[{}]", self.0) } else { f.write_str(self.0) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Tcp { host, port } => write!(f, "9p://{}:{port}", Host(host)),
            Place::Tls { host, port, .. } => write!(f, "9ps://{}:{port}", Host(host)),
            Place::Unix { socket } => write!(f, "9p+unix:{}", Encoded(socket.as_os_str().as_bytes(), b":")),
            Place::Ssh { user: Some(user), host } => write!(f, "9p+ssh://{user}@{}", Host(host)),
            Place::Ssh { user: None, host } => write!(f, "9p+ssh://{}", Host(host)),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place)?;
        if !self.path.is_empty() {
            let colon = if matches!(self.place, Place::Unix { .. }) { ":" } else { "" };
            write!(f, "{colon}{}", Encoded(&self.path, b""))?;
        }
        let mut mark = '?';
        if let Place::Tls { pin: Some(pin), .. } = self.place {
            write!(f, "{mark}pin={pin}")?;
            mark = '&';
        }
        if let Some(aname) = &self.aname {
            write!(f, "{mark}aname={}", Encoded(aname, b"&=#"))?;
            mark = '&';
        }
        if let Some(dialect) = self.dialect {
            write!(f, "{mark}dialect={dialect}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Address {
        text.parse().unwrap_or_else(|e| panic!("{e}"))
    }

    fn tcp(host: &str, port: u16) -> Place {
        Place::Tcp { host: host.into(), port }
    }

    #[test]
    fn the_port_is_5640_unless_given() {
        assert_eq!(parse("9p://localhost").place, tcp("localhost", 5640));
        assert_eq!(parse("9p://10.0.0.1:564").place, tcp("10.0.0.1", 564));
        assert_eq!(parse("9p://h:0/a").place, tcp("h", 0));
        assert_eq!(parse("9ps://h").place, Place::Tls { host: "h".into(), port: 5640, pin: None });
    }

    #[test]
    fn an_ipv6_address_stands_in_brackets() {
        assert_eq!(parse("9p://[::1]:7/x").place, tcp("::1", 7));
        assert_eq!(parse("9p://[fe80::1%eth0]").place, tcp("fe80::1%eth0", 5640));
        assert!(matches!("9p://::1".parse::<Address>(), Err(BadAddress::Host { .. })));
        assert!(matches!("9p://[localhost]".parse::<Address>(), Err(BadAddress::Host { .. })));
    }

    #[test]
    fn a_unix_socket_ends_at_the_first_colon_with_a_slash() {
        let a = parse("9p+unix:/run/nine:x:/a:/b");
        assert_eq!((a.place, a.path), (Place::Unix { socket: "/run/nine:x".into() }, b"/a:/b".to_vec()));
        let a = parse("9p+unix:/run/a%3A/b%3f");
        assert_eq!(a.place, Place::Unix { socket: "/run/a:/b?".into() });
        assert!(matches!("9p+unix:run/x".parse::<Address>(), Err(BadAddress::Socket(_))));
    }

    #[test]
    fn host_and_path_alone_mean_ssh_and_are_not_decoded() {
        let a = parse("ken@host:/tmp/100%?");
        assert_eq!(a.place, Place::Ssh { user: Some("ken".into()), host: "host".into() });
        assert_eq!(a.path, b"/tmp/100%?");
        assert_eq!(parse("[::1]:/x").place, Place::Ssh { user: None, host: "::1".into() });
        assert_eq!(parse("9p+ssh://h/x"), parse("h:/x"));
    }

    #[test]
    fn nothing_that_ssh_would_take_for_an_option_is_a_host_or_a_user() {
        assert!(matches!("-oProxyCommand=x:/y".parse::<Address>(), Err(BadAddress::Host { .. })));
        assert!(matches!("9p+ssh://-l@h/".parse::<Address>(), Err(BadAddress::User { .. })));
        assert!(matches!("9p+ssh://@h/".parse::<Address>(), Err(BadAddress::User { .. })));
    }

    #[test]
    fn the_query_is_decoded_byte_by_byte() {
        let a = parse("9p://h/p%20q?aname=%2Fsrv%26%ff&dialect=9P2000.u");
        assert_eq!(a.path, b"/p q");
        assert_eq!(a.aname.as_deref(), Some(&b"/srv&\xff"[..]));
        assert_eq!(a.dialect, Some(ninefold_proto::Dialect::Unix.into()));
        assert_eq!(parse("9p://h?dialect=9P2000.u.ix").to_string(), "9p://h:5640?dialect=9P2000.u.ix");
    }

    #[test]
    fn an_error_says_what_is_wrong() {
        let bad = |text: &str| text.parse::<Address>().unwrap_err();
        assert!(matches!(bad(""), BadAddress::Form(_)));
        assert!(matches!(bad("/a:/b"), BadAddress::Form(_)));
        assert!(matches!(bad("9p:/h"), BadAddress::Form(_)));
        assert!(matches!(bad("ftp://h"), BadAddress::Scheme { .. }));
        assert!(matches!(bad("9p://"), BadAddress::NoHost(_)));
        assert!(matches!(bad("9p://:5640"), BadAddress::NoHost(_)));
        assert!(matches!(bad("9p://a b"), BadAddress::Host { .. }));
        for port in ["", "+1", "65536", "x"] {
            let expected = BadAddress::Port { text: format!("9p://h:{port}"), port: port.into() };
            assert_eq!(bad(&format!("9p://h:{port}")), expected);
        }
        for text in ["9p://h/%", "9p://h/%4", "9p://h/%zz", "9p://h/%+1", "9p://h/%00"] {
            assert!(matches!(bad(text), BadAddress::Percent(_)), "{text}");
        }
        assert!(matches!(bad("9p://h?x=1"), BadAddress::Query { .. }));
        assert!(matches!(bad("9p://h?aname=a&aname=b"), BadAddress::Query { .. }));
        assert!(matches!(bad("9p://h?dialect=9P2000.e"), BadAddress::Dialect { .. }));
        let digits = "0".repeat(64);
        assert!(matches!(bad(&format!("9p://h?pin=sha256:{digits}")), BadAddress::Pin { .. }));
        for pin in [format!("sha256:{digits}0"), digits.clone(), format!("sha256:{}x", &digits[1..]), "sha256:".into()]
        {
            assert!(matches!(bad(&format!("9ps://h?pin={pin}")), BadAddress::Pin { .. }), "{pin}");
        }
        assert!(matches!(bad(&format!("9ps://h?pin=sha256:{digits}&pin=sha256:{digits}")), BadAddress::Pin { .. }));
    }

    #[test]
    fn what_is_displayed_reads_back_the_same() {
        for text in [
            "9p://h",
            "9p://[::1]:7/x%20y%3f%25?aname=a%26b%3D%ff",
            "9ps://h:1?dialect=9P2000.L",
            "9ps://h:1/a?pin=sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff&aname=b",
            "9p+unix:/a%3A/b:/c:/d?aname=&dialect=9P2000",
            "9p+unix:/%01%e2%82",
            "9p+ssh://u@[fe80::1%e]/caf\u{e9}",
            "host:/a?b%zz",
        ] {
            let address = parse(text);
            assert_eq!(parse(&address.to_string()), address, "{text} -> {address}");
        }
        assert_eq!(parse("9p://h").to_string(), "9p://h:5640");
    }
}
