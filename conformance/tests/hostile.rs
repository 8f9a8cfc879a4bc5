//! The client library against the hostile server: each misbehaviour in each of its dialects, in memory and in virtual time.
//!
//! Each test plays one misbehaviour, runs every errand on a connection of its own, and compares what comes of it with the
//! list below, to the exact error. For all of them holds: the result is there within the client's timeout, the end of the
//! connection too, no fid or request is left behind on a connection that lives on, nothing panics, and no memory is
//! asked for because a server says so: the process may have 3 GiB of addresses, less than a frame can claim.

#[path = "hostile/errand.rs"]
mod errand;

use std::collections::BTreeSet;
use std::sync::{Arc, Once, mpsc};
use std::thread;
use std::time::Duration;

use ninefold::proto::Dialect;
use ninefold::proto::dialect::Version;
use ninefold_conformance::hostile::{Hostile, Misbehaviour, all, find};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::Builder;

use errand::Errand::{
    Cancel, Chain, ChainCancel, Connect, Deep, Link, List, Lock, Metadata, Read, ReadLarge, Write, WriteLarge, Xattr,
};
use errand::{Errand, Outcome, SETTLED, TIMEOUT};

/// Bytes of addresses; a claim of 4 GiB - 1 cannot be met.
const ADDRESSES: u64 = 3 << 30;

/// Virtual time is counted in milliseconds, each timer rounded up.
const ROUNDING: Duration = Duration::from_millis(10);

/// Real time for one errand, all of whose waits are virtual: a client that turns in a circle is told from one that works.
const TURNING: Duration = Duration::from_secs(60);

const PLAIN: Version = Version { dialect: Dialect::Plan9, groups: false, streams: false };
const UNIX: Version = Version { dialect: Dialect::Unix, groups: false, streams: false };
const LINUX: Version = Version { dialect: Dialect::Linux, groups: false, streams: false };

const P: &[Version] = &[PLAIN];
const U: &[Version] = &[UNIX];
const L: &[Version] = &[LINUX];
const PU: &[Version] = &[PLAIN, UNIX];
const UL: &[Version] = &[UNIX, LINUX];
const PUL: &[Version] = &[PLAIN, UNIX, LINUX];
/// With groups. What no row of these says is as in the same dialect without.
const UIX: &[Version] = &[Version { groups: true, ..UNIX }];
const IX: &[Version] = &[Version { groups: true, ..PLAIN }, Version { groups: true, ..UNIX }];
const N1: &[Version] = &[Version::N1];
const G: &[Version] = &[Version { groups: true, ..PLAIN }, Version { groups: true, ..UNIX }, Version::N1];

/// Everything that is done on a connection.
const WORK: &[Errand] =
    &[Metadata, List, Read, ReadLarge, Write, WriteLarge, Deep, Link, Xattr, Lock, Cancel, Chain, ChainCancel];
/// What reads a file that is there, to its end.
const READS: &[Errand] = &[Read, ReadLarge, Write];
/// What clunks and waits for the answer.
const CLUNKS: &[Errand] = &[Read, ReadLarge, Write, WriteLarge, Chain];
/// What opens or makes a file.
const OPENS: &[Errand] = &[List, Read, ReadLarge, Write, WriteLarge, Lock, Cancel, Chain, ChainCancel];
/// What opens a file that is there.
const OPENS_OLD: &[Errand] = &[List, Read, ReadLarge, Write, Lock, Cancel, Chain, ChainCancel];
/// What asks for attributes of a plain file.
const STATS: &[Errand] = &[Metadata, ReadLarge, Deep, Link, Chain];
/// What asks for attributes.
const STATS_ALL: &[Errand] = &[Metadata, ReadLarge, Deep, Link, Cancel, Chain, ChainCancel];

/// What comes of some errands in some versions, `*` standing for anything. What nobody lists must go well; where nobody
/// can connect nothing else is tried.
struct Expected {
    versions: &'static [Version],
    errands: &'static [Errand],
    text: &'static str,
}

/// One test for each misbehaviour, named after it.
macro_rules! survived {
    ($($name:ident { $($versions:ident $errands:expr => $text:literal;)* })*) => {
        mod a_client_survives {
            use super::*;
            $(
                #[test]
                fn $name() {
                    play(stringify!($name), &[$(Expected { versions: $versions, errands: &$errands, text: $text }),*]);
                }
            )*
        }

        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

survived! {
    version_msize_above { PUL [Connect] => "Misbehaved(Msize { offered: 131072, got: 131073 })"; }
    version_msize_greatest { PUL [Connect] => "Misbehaved(Msize { offered: 131072, got: 4294967295 })"; }
    version_msize_zero { PUL [Connect] => "Misbehaved(Msize { offered: 131072, got: 0 })"; }
    version_msize_100 { PUL [Connect] => "Misbehaved(Msize { offered: 131072, got: 100 })"; }
    version_unknown { PUL [Connect] => "NoDialect(*)"; }
    version_not_offered { PUL [Connect] => "NoDialect(*)"; }
    version_longer { PUL [Connect] => "NoDialect(*)"; }
    version_empty { PUL [Connect] => "NoDialect(*)"; }
    version_endless_name { PUL [Connect] => "NoDialect(*)"; }
    version_error { PUL [Connect] => "NoDialect(*)"; }
    version_closed { PUL [Connect] => "Lost(Closed)"; }
    version_silent { PUL [Connect] => "TimedOut(2s)"; }
    version_other_type { PUL [Connect] => r#"Misbehaved(WrongType { request: "Tversion", reply: "Rclunk" })"#; }
    version_twice { PUL [Connect] => "Misbehaved(UnknownTag(Tag(65535)))"; }
    version_again { PUL WORK => "Misbehaved(UnknownTag(Tag(65535)))"; }
    version_plain {
        U [Connect] => r#"NoDialect("9P2000.u")"#;
        L [Connect] => r#"NoDialect("9P2000.L")"#;
        UIX [Connect] => r#"NoDialect("9P2000.u.ix")"#;
        N1 [Connect] => r#"NoDialect("9P2000.L.n1")"#;
    }
    // "SSH-" as a number, and the longest answer to a Tversion: an Rerror with a text of 65,535 bytes.
    banner { PUL [Connect] => "Misbehaved(Frame(SizeTooLarge { size: 759714643, msize: 65548 }))"; }

    attach_silent { PUL [Connect] => "TimedOut(2s)"; }
    attach_closed { PUL [Connect] => "Lost(Closed)"; }
    attach_file { PUL [List] => "Refused(Error { errno: ENOTDIR, text: None })"; }

    frame_size_zero { PUL WORK => "Misbehaved(Frame(SizeTooSmall(0)))"; }
    frame_size_six { PUL WORK => "Misbehaved(Frame(SizeTooSmall(6)))"; }
    frame_over_msize { PUL WORK => "Misbehaved(Frame(SizeTooLarge { size: 131073, msize: 131072 }))"; }
    frame_four_gib { PUL WORK => "Misbehaved(Frame(SizeTooLarge { size: 4294967295, msize: 131072 }))"; }
    frame_cut_silent { PUL WORK => "TimedOut(2s)"; }
    frame_cut_closed { PUL WORK => "Lost(Closed)"; }
    frame_trailing { PUL WORK => r#"Misbehaved(Body { name: "Rwalk", error: Trailing(4) })"#; }
    frame_short { PUL WORK => r#"Misbehaved(Body { name: "Rwalk", error: Short("wqids") })"#; }
    frame_unknown_type { PUL WORK => "Misbehaved(UnknownType(251))"; }

    reply_other_type { PUL WORK => r#"Misbehaved(WrongType { request: "Twalk", reply: "Rclunk" })"#; }
    reply_other_error {
        PU WORK => "Misbehaved(UnknownType(7))";
        L WORK => "Misbehaved(UnknownType(107))";
    }
    reply_is_request { PUL WORK => r#"Misbehaved(RequestFromServer("Twalk"))"#; }
    tag_unused { PUL WORK => "Misbehaved(UnknownTag(Tag(*)))"; }
    tag_none { PUL WORK => "Misbehaved(UnknownTag(Tag(65535)))"; }
    tag_twice {
        PUL WORK => "Misbehaved(UnknownTag(Tag(*)))";
        // The second one has the tag of what is answered next.
        IX [Chain, ChainCancel] => r#"Misbehaved(WrongType { request: "Topen", reply: "Rwalk" })"#;
        N1 [Chain, ChainCancel] => r#"Misbehaved(WrongType { request: "Tlopen", reply: "Rwalk" })"#;
    }

    walk_too_many {
        PUL [Metadata, Read, ReadLarge, Link, Xattr, Lock, Cancel, Chain, ChainCancel] => "Misbehaved(TooManyQids { names: 1, got: 2 })";
        PUL [List, Write, WriteLarge] => "Misbehaved(TooManyQids { names: 0, got: 1 })";
        PUL [Deep] => "Misbehaved(TooManyQids { names: 16, got: 17 })";
    }
    walk_none {
        PUL [Metadata, Read, ReadLarge, Write, Link, Xattr, Lock, Cancel, Chain, ChainCancel] => "Misbehaved(EmptyWalk(1))";
        PUL [Deep] => "Misbehaved(EmptyWalk(16))";
    }
    walk_count_lies { PUL WORK => r#"Misbehaved(Body { name: "Rwalk", error: Short("wqids") })"#; }
    walk_partial { PUL [Deep] => "Refused(Error { errno: ENOENT, text: None })"; }
    // Nothing is decided by what these lie about.
    walk_alike {}
    walk_through_file {}

    open_other_kind { PUL OPENS => "Suspect(Type)"; }
    open_other_file {}
    open_iounit_greatest {}
    open_iounit_one {
        PU [List] => r#"Refused(Error { errno: EINVAL, text: Some("bad argument") })"#;
        L [List] => "Refused(Error { errno: EINVAL, text: None })";
        PUL [ReadLarge, WriteLarge] => "ok: the caller stopped";
    }

    read_too_much {
        PUL [Read, Cancel, Chain, ChainCancel] => "Misbehaved(TooMuchData { asked: 100, got: 101 })";
        PUL [Write] => "Misbehaved(TooMuchData { asked: 200, got: 201 })";
        PUL [ReadLarge] => "Misbehaved(TooMuchData { asked: 65536, got: 65537 })";
    }
    read_count_lies {
        PUL [Read, ReadLarge, Write, Cancel, Chain, ChainCancel] => r#"Misbehaved(Body { name: "Rread", error: Short("data") })"#;
    }
    read_one_byte { PUL [ReadLarge] => "ok: the caller stopped"; }
    read_endless {
        PUL [Read] => "ok: 100 bytes";
        PUL [ReadLarge] => "ok: the caller stopped";
        PUL [Write] => "ok: 200 bytes came back";
        G [Chain] => "ok: 1 names, 100 bytes of 6";
    }
    read_nothing {
        PUL [Read] => "ok: 0 bytes";
        PUL [ReadLarge] => "ok: 0 bytes, 3145729 are missing";
        PUL [Write] => "ok: 0 bytes came back";
        G [Chain] => "ok: 1 names, 0 bytes of 6";
    }
    write_too_much {
        PUL [Write, Chain] => "Misbehaved(TookTooMuch { sent: 100, got: 101 })";
        PUL [WriteLarge] => "Misbehaved(TookTooMuch { sent: 65536, got: 65537 })";
    }
    write_nothing {
        PUL [Write, WriteLarge] => "Suspect(NoProgress)";
        // Out of its turn.
        IX [Chain] => r#"Misbehaved(WrongType { request: "Tcreate", reply: "Rwrite" })"#;
        N1 [Chain] => r#"Misbehaved(WrongType { request: "Twalk", reply: "Rwrite" })"#;
    }
    write_one_byte {
        PUL [WriteLarge] => "ok: the caller stopped";
        G [Chain] => "ok: 1 bytes were written";
    }

    dir_name_slash { PUL [List] => "Suspect(EntryName(Forbidden))"; }
    dir_name_nul { PUL [List] => "Suspect(EntryName(Forbidden))"; }
    dir_name_empty { PUL [List] => "Suspect(EntryName(Empty))"; }
    dir_name_dot { P [List] => "Suspect(EntryName(Dots))"; }
    dir_name_dots { P [List] => "Suspect(EntryName(Dots))"; }
    dir_dots_again {}
    dir_name_long { PUL [List] => "Suspect(EntryName(TooLong))"; }
    dir_names_odd { PUL [List] => r"ok: \x1b[31mred\x07 -rf line\nbreak nnn*nnn \xff\xfe"; }
    dir_record_length {
        P [List] => "Suspect(Stat(StatLength(68)))";
        U [List] => "Suspect(Stat(StatLength(90)))";
    }
    dir_record_cut {
        PU [List] => r#"Suspect(Stat(Short("stat")))"#;
        L [List] => r#"Misbehaved(Entries(Short("name")))"#;
    }
    dir_too_much { PUL [List] => "Misbehaved(TooMuchData { asked: 2048, got: 2049 })"; }
    dir_endless { PUL [List] => "Suspect(EndlessDirectory(10000))"; }
    dir_dots_endless { UL [List] => "Suspect(LoopingDirectory)"; }
    dir_again { PUL [List] => "Suspect(LoopingDirectory)"; }
    dir_cookie_zero { L [List] => "Suspect(LoopingDirectory)"; }
    // A walk finds what is there: nothing here follows what a listing says.
    dir_kind_lies {}
    dir_inside_itself { PUL [List] => "ok: again"; }
    dir_twin_dir { UL [List] => "ok: trap"; }
    dir_twin_file { UL [List] => "ok: trap"; }

    attr_size_greatest {
        PUL STATS => "Suspect(Size(18446744073709551615))";
        PU [List] => "Suspect(Size(18446744073709551615))";
    }
    attr_size_large {
        PUL [Metadata, Deep] => "ok: 9223372036854775807 bytes";
        UL [Link] => "ok: 'greeting', 9223372036854775807 bytes";
        G [Chain] => "ok: 1 names, 6 bytes of 9223372036854775807";
    }
    attr_nsec { L STATS_ALL => "Suspect(Time(18446744073709551615))"; }
    attr_sec {}
    attr_numbers_greatest {}
    attr_no_mode { L STATS_ALL => "Suspect(NoMode)"; }
    attr_nothing { L STATS_ALL => "Suspect(NoMode)"; }
    attr_other_kind {
        PUL STATS_ALL => "Suspect(Type)";
        PU [List] => "Suspect(Type)";
    }
    stat_length {
        P STATS_ALL => r#"Misbehaved(Stat(Short("muid")))"#;
        U STATS_ALL => r#"Misbehaved(Stat(Short("n_muid")))"#;
    }
    // A file is known by the name that was walked to.
    stat_name_slash {}
    stat_owner_escape {}

    // Nobody follows it here.
    link_loop {}
    link_chain { UL [Link] => "TooManyLinks"; }
    link_target_nul { UL [Link] => "Suspect(LinkTarget)"; }
    link_target_empty { UL [Link] => "Suspect(LinkTarget)"; }
    link_target_long { UL [Link] => "Suspect(LinkTarget)"; }
    link_target_winding { UL [Link] => "Suspect(LinkTarget)"; }
    link_target_escape {
        U [Link] => r#"Refused(Error { errno: ENOENT, text: Some("file does not exist") })"#;
        L [Link] => "Refused(Error { errno: ENOENT, text: None })";
    }

    xattr_size_absurd { L [Xattr] => "Suspect(XattrSize(1152921504606846976))"; }
    xattr_size_small { L [Xattr] => "ok: re"; }
    lock_other_status { L [Lock] => "Suspect(Lock(250))"; }

    error_zero {
        PU OPENS_OLD => "Refused(Error { errno: EIO, text: None })";
        L OPENS_OLD => "Misbehaved(ErrorZero)";
    }
    error_greatest {
        U OPENS_OLD => "Refused(Error { errno: EIO, text: None })";
        L OPENS_OLD => "Refused(Error { errno: errno 4294967295, text: None })";
    }
    error_escape {
        PU OPENS_OLD => r#"Refused(Error { errno: EIO, text: Some("\\u{1b}]0;owned\\u{7}\\u{1b}[2J\\nok") })"#;
    }
    error_bytes { PU OPENS_OLD => r#"Refused(Error { errno: EIO, text: Some("\\xff\\xfe\\x9b31m") })"#; }
    error_long { PU OPENS_OLD => r#"Refused(Error { errno: EIO, text: Some("xxx*xxx…") })"#; }
    clunk_fails {
        PU CLUNKS => r#"Refused(Error { errno: EIO, text: Some("i/o error") })"#;
        L CLUNKS => "Refused(Error { errno: EIO, text: None })";
    }

    flush_silent {
        PUL READS => "TimedOut(2s)";
        PUL [Cancel, ChainCancel] => "Lost(Unanswered)";
    }
    flush_late {
        PUL READS => "TimedOut(2s)";
        PUL [Cancel, ChainCancel] => "Misbehaved(UnknownTag(Tag(*)))";
    }
    flush_instead {
        PUL READS => "TimedOut(2s)";
        PUL [Cancel, ChainCancel] => "Lost(Unanswered)";
    }
    flush_both { PUL READS => "TimedOut(2s)"; }
    // An error says nothing of the read, whose reply never comes either.
    flush_error {
        PUL READS => "TimedOut(2s)";
        PUL [Cancel, ChainCancel] => "Lost(Unanswered)";
    }

    silent { PUL WORK => "TimedOut(2s)"; }
    clunk_silent {
        PUL CLUNKS => "TimedOut(2s)";
        PUL [Cancel, ChainCancel] => "Lost(Unanswered)";
    }
    drip { PUL WORK => "TimedOut(2s)"; }
    closed_midway { PUL [Read, ReadLarge, Write, WriteLarge, Chain] => "Lost(Closed)"; }
    deaf { PUL WORK => "TimedOut(2s)"; }
}

#[test]
fn every_misbehaviour_has_its_test() {
    let played: BTreeSet<&str> = all().map(|misbehaviour| misbehaviour.name).collect();
    let tested: Vec<String> = NAMES.iter().map(|name| name.replace('_', "-")).collect();
    assert_eq!(played, tested.iter().map(String::as_str).collect());
}

#[test]
fn a_server_that_knows_only_9p2000_is_spoken_to_in_it() {
    let plain = serve(find("version-plain").unwrap());
    for errand in Errand::ALL.into_iter().filter(|errand| errand.is_of(PLAIN)) {
        assert_eq!(outcome(&plain, None, errand).text, "ok", "{errand:?}");
    }
}

#[test]
fn every_offer_that_is_refused_is_followed_by_the_next_until_there_is_none() {
    let none = r#"NoDialect("9P2000, 9P2000.u or 9P2000.L")"#;
    for (name, text) in [
        ("version-unknown", none),
        ("version-not-offered", none),
        ("version-longer", none),
        ("version-empty", none),
        ("version-endless-name", none),
        ("version-error", none),
        // Behind a stream that is there already there is no server to dial again.
        ("version-closed", "Lost(Closed)"),
        ("version-silent", "TimedOut(2s)"),
        ("version-msize-above", "Misbehaved(Msize { offered: 131072, got: 131073 })"),
    ] {
        let outcome = outcome(&serve(find(name).unwrap()), None, Connect);
        assert_eq!(outcome.text, text, "{name}");
        assert!(outcome.took <= TIMEOUT + ROUNDING, "{name}: {:?}", outcome.took);
    }
}

/// Plays a misbehaviour in each of its dialects, with groups and without, and compares what comes of each errand.
fn play(name: &str, expected: &[Expected]) {
    let misbehaviour = find(&name.replace('_', "-")).expect("a misbehaviour of that name");
    let mut faults = Vec::new();
    let both = |dialect| [Version::from(dialect), Version { dialect, groups: true, streams: false }];
    let versions = misbehaviour.dialects().flat_map(both);
    for version in versions {
        let row = |version: Version, errand: Errand| {
            expected.iter().find(|e| e.versions.contains(&version) && e.errands.contains(&errand)).map(|e| e.text)
        };
        let of = |errand: Errand| row(version, errand).or_else(|| row(version.dialect.into(), errand));
        let errands = Errand::ALL.into_iter().filter(|&errand| errand == Connect || of(Connect).is_none());
        // Files that are made in it are made once.
        let server = serve(misbehaviour);
        for errand in errands.filter(|errand| errand.is_of(version)) {
            let outcome = outcome(&server, Some(version), errand);
            let text = of(errand).unwrap_or("ok");
            if !matches(text, &outcome.text) {
                faults.push(format!("{version} {errand:?}: {} instead of {text}", outcome.text));
            }
            let refusals = errand.refusals(version);
            faults.extend(manners(&outcome, name, refusals).map(|fault| format!("{version} {errand:?}: {fault}")));
        }
    }
    for row in expected {
        let spare = row.versions.iter().find(|version| misbehaviour.dialects().all(|of| of != version.dialect));
        faults.extend(spare.map(|version| format!("'{}' is expected in {version}, where it is not played", row.text)));
    }
    assert!(faults.is_empty(), "{name}:\n{}", faults.join("\n"));
}

/// What holds whatever the server does.
fn manners(outcome: &Outcome, name: &str, refusals: u64) -> impl Iterator<Item = String> {
    let late = (outcome.took > TIMEOUT + ROUNDING).then(|| format!("it took {:?}", outcome.took));
    let slow_end = (outcome.close_took > TIMEOUT + ROUNDING).then(|| format!("its end took {:?}", outcome.close_took));
    // A connection that is over, or a server that does not answer, holds what it held. Of these two a listing is whole.
    let over = ["Misbehaved", "Lost", "TimedOut", "NoDialect"].iter().any(|word| outcome.text.starts_with(word))
        || ["clunk_silent", "closed_midway"].contains(&name);
    let leak = (!over && outcome.held != SETTLED).then(|| format!("{:?} fids and requests are left", outcome.held));
    // What a client that does well asks for is not refused: a fid clunked twice is.
    let refused = (outcome.text == "ok" && outcome.refused > refusals && name != "clunk_fails")
        .then(|| format!("{} requests were refused", outcome.refused));
    [late, slow_end, leak, refused].into_iter().flatten()
}

fn serve(misbehaviour: &'static Misbehaviour) -> Arc<Hostile> {
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    Arc::new(runtime.block_on(Hostile::new(misbehaviour)).expect("a tree in memory"))
}

/// Runs an errand in a thread and a runtime of its own, in virtual time.
fn outcome(server: &Arc<Hostile>, version: Option<Version>, errand: Errand) -> Outcome {
    static BOUNDED: Once = Once::new();
    BOUNDED.call_once(|| {
        let limit = getrlimit(Resource::As);
        setrlimit(Resource::As, Rlimit { current: Some(ADDRESSES), ..limit }).expect("a lower limit is always granted");
        assert!(Vec::<u8>::new().try_reserve_exact(u32::MAX as usize).is_err(), "a frame's claim could be met");
    });
    let (tell, told) = mpsc::channel();
    let server = server.clone();
    let errands = thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
        let _ = tell.send(runtime.block_on(errand::run(server, version, errand)));
    });
    match told.recv_timeout(TURNING) {
        Ok(outcome) => outcome,
        Err(mpsc::RecvTimeoutError::Timeout) => {
            panic!("{version:?} {errand:?}: no end after {TURNING:?}")
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => match errands.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("it tells before it ends"),
        },
    }
}

/// Whether `text` is as `pattern` says, one `*` in it standing for anything.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => text.len() >= head.len() + tail.len() && text.starts_with(head) && text.ends_with(tail),
    }
}
