//! Reading directories (read(5); Treaddir of .L).

use std::collections::BTreeSet;

use ninefold::proto::message::{R, T};
use ninefold::proto::{Dialect, Fid};

use crate::check::case::{Group, case};
use crate::check::conn::Conn;
use crate::check::cx::{CROWD, Cx, MSIZE, crowd_name};
use crate::check::talk::{Entry, HERE, READ, without_dots};
use crate::check::verdict::{End, Outcome, ensure, prefer};

pub const GROUP: Group = Group {
    name: "readdir",
    about: "reading directories",
    cases: &[
        case!(
            lists_what_is_there,
            PUL,
            Write,
            "read(5); diod protocol.md, readdir",
            "A directory lists its files and directories, each once."
        ),
        case!(
            empty_directory_has_no_entries,
            PUL,
            Write,
            "read(5); diod protocol.md, readdir",
            "A new directory lists nothing but '.' and '..'."
        ),
        case!(
            dots_are_listed,
            L,
            Write,
            "readdir(3); Linux's client",
            "Rreaddir lists '.' and '..', as Linux's client hands them on."
        ),
        case!(dots_are_not_listed, P, Write, "read(5)", "A directory of 9P2000 does not list '.' and '..'."),
        case!(
            dots_are_listed_as_what_they_are,
            U,
            Write,
            "Linux's client, which shows no others; QEMU, lib9p",
            "A directory of .u lists '.' and '..' with the qids of itself and of the one above, or neither."
        ),
        case!(
            qids_are_those_of_walks,
            PUL,
            Write,
            "read(5); diod protocol.md, readdir",
            "The qid in an entry is the one that a walk to that name gives."
        ),
        case!(
            three_hundred_entries_are_listed_once,
            PUL,
            Write,
            "read(5); diod protocol.md, readdir",
            "A directory of 320 files lists each once, with an msize of 4096."
        ),
        case!(
            small_counts_list_all,
            PUL,
            Write,
            "read(5); diod protocol.md, readdir",
            "A directory of 320 files lists each once when it is read 300 bytes at a time."
        ),
        case!(
            entries_are_never_split,
            PUL,
            Write,
            "read(5): an integral number of entries",
            "A reply has whole entries, whatever the count."
        ),
        case!(
            count_without_room_is_told,
            PUL,
            Write,
            "read(5); getdents(2)",
            "A count in which no entry has room is an error or no bytes, not a part of an entry."
        ),
        case!(
            read_past_the_end_is_empty,
            PUL,
            Write,
            "read(5); diod protocol.md, readdir",
            "Read again at its end a directory gives no entries."
        ),
        case!(
            offset_0_begins_anew,
            PUL,
            Write,
            "read(5); diod protocol.md, readdir",
            "Offset 0 reads the directory from its beginning once more, with the same entries."
        ),
        case!(
            offset_elsewhere_is_refused,
            PU,
            Write,
            "read(5)",
            "An offset that is neither 0 nor where the last read ended is an error in 9P2000."
        ),
        case!(
            every_cookie_reads_on,
            L,
            Write,
            "diod protocol.md, readdir; telldir(3)",
            "Reading on from the offset of any entry gives the entries behind it."
        ),
        case!(
            deleting_while_reading_skips_nothing,
            PUL,
            Write,
            "rm -r through any client",
            "When the entries read so far are removed, reading on gives all the others."
        ),
        case!(
            cookie_of_a_removed_entry_reads_on,
            L,
            Write,
            "diod protocol.md, readdir; Linux's client",
            "The offset of an entry that was removed since reads on behind it."
        ),
        case!(
            creating_while_reading_repeats_nothing,
            PUL,
            Write,
            "readdir(3)",
            "Files made while a directory is read do not make others be listed twice or not at all."
        ),
        case!(
            new_fid_sees_what_was_made,
            PUL,
            Write,
            "read(5)",
            "A file made before a directory is opened is listed, and one removed before is not."
        ),
        case!(
            two_fids_read_apart,
            PUL,
            Write,
            "read(5)",
            "Two fids that read one directory do not disturb each other."
        ),
        case!(
            needs_an_open_fid,
            PUL,
            Write,
            "read(5); diod protocol.md, readdir",
            "A directory whose fid is not open cannot be read."
        ),
        case!(needs_a_directory, L, Write, "diod protocol.md, readdir", "Treaddir of a file is an error."),
        case!(
            types_are_told,
            L,
            Write,
            "diod protocol.md, readdir: type is d_type",
            "The type of an entry is that of its file: DT_DIR, DT_REG, or 0 where it is not known."
        ),
        case!(
            lengths_agree_with_stat,
            PU,
            Write,
            "read(5); stat(5)",
            "The stat record in a directory has the length and the mode that Tstat tells."
        ),
    ],
};

const F: Fid = Fid(20);
const G: Fid = Fid(21);

async fn open_here(s: &mut Conn, fid: Fid) -> Outcome {
    s.reach(HERE, fid, &[]).await?;
    s.open(fid, READ).await?.ok().map(drop)
}

/// Fails unless these are the crowd's names without `gone`, each once.
fn whole(names: Vec<Vec<u8>>, but: &BTreeSet<Vec<u8>>) -> Outcome {
    let expected: BTreeSet<Vec<u8>> = (0..CROWD).map(crowd_name).filter(|name| !but.contains(name)).collect();
    let mut seen = BTreeSet::new();
    for name in &names {
        ensure(seen.insert(name.clone()), "each name once", || format!("'{}' twice", name.escape_ascii()))?;
    }
    let missing: Vec<_> = expected.difference(&seen).map(|n| n.escape_ascii().to_string()).collect();
    ensure(missing.is_empty(), format!("{} names", expected.len()), || {
        format!("{} are missing, '{}' among them", missing.len(), missing[0])
    })
}

async fn lists_what_is_there(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    s.dir(b"d").await?;
    s.file("grüße".as_bytes(), b"x").await?;
    let names = s.names(HERE).await?;
    let expected: Vec<Vec<u8>> = vec![b"d".to_vec(), b"f".to_vec(), "grüße".into()];
    let show = |names: &[Vec<u8>]| String::from_utf8_lossy(&names.join(&b' ')).into_owned();
    ensure(names == expected, show(&expected), || show(&names))
}

async fn empty_directory_has_no_entries(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    let names = s.names(HERE).await?;
    ensure(names.is_empty(), "no names", || format!("{} names", names.len()))
}

async fn dots(c: &mut Cx) -> Result<usize, End> {
    let mut s = c.here().await?;
    open_here(&mut s, F).await?;
    let entries = s.entries_from(F, 0, 4000).await?;
    Ok(entries.iter().filter(|e| e.name == b"." || e.name == b"..").count())
}

async fn dots_are_listed(c: &mut Cx) -> Outcome {
    let dots = dots(c).await?;
    prefer(dots == 2, "'.' and '..'", || format!("{dots} of them"))
}

async fn dots_are_not_listed(c: &mut Cx) -> Outcome {
    let dots = dots(c).await?;
    ensure(dots == 0, "neither", || format!("{dots} of them"))
}

async fn dots_are_listed_as_what_they_are(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.dir(b"d").await?;
    let above = s.facts(HERE).await?.qid;
    let own = s.reach(HERE, F, &[b"d"]).await?[0];
    s.open(F, READ).await?.ok()?;
    let listed: Vec<_> =
        s.entries_from(F, 0, 4000).await?.into_iter().map(|e| (e.name, e.qid.kind, e.qid.path)).collect();
    let dots = [(b".".to_vec(), own.kind, own.path), (b"..".to_vec(), above.kind, above.path)];
    let right = listed.is_empty() || (listed.len() == 2 && dots.iter().all(|dot| listed.contains(dot)));
    ensure(right, format!("{dots:?}, or nothing"), || format!("{listed:?}"))
}

async fn qids_are_those_of_walks(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    s.dir(b"d").await?;
    open_here(&mut s, F).await?;
    let entries = s.entries_from(F, 0, 4000).await?;
    for name in [b"f", b"d"] {
        let walked = s.reach(HERE, G, &[name]).await?[0];
        s.clunk(G).await?.ok()?;
        let entry = entries.iter().find(|e| e.name == name);
        let right = entry.is_some_and(|e| e.qid.path == walked.path && e.qid.kind == walked.kind);
        ensure(right, format!("{walked:?} for '{}'", name.escape_ascii()), || format!("{entry:?}"))?;
    }
    Ok(())
}

async fn all_by(c: &mut Cx, msize: u32, count: Option<u32>) -> Outcome {
    let mut s = c.crowd_with(msize).await?;
    open_here(&mut s, F).await?;
    let count = count.unwrap_or(s.io_size());
    let entries = s.entries_from(F, 0, count).await?;
    whole(without_dots(entries), &BTreeSet::new())
}

async fn three_hundred_entries_are_listed_once(c: &mut Cx) -> Outcome {
    all_by(c, 4096, None).await
}

async fn small_counts_list_all(c: &mut Cx) -> Outcome {
    all_by(c, MSIZE, Some(300)).await
}

async fn entries_are_never_split(c: &mut Cx) -> Outcome {
    let mut s = c.crowd_with(MSIZE).await?;
    for count in [301, 333, 512, 777, 1000, 4095] {
        open_here(&mut s, F).await?;
        // Decoding fails at a part of an entry.
        let entries = s.entries(F, 0, count).await?;
        ensure(!entries.is_empty(), format!("entries in {count} bytes"), || "none".to_owned())?;
        s.clunk(F).await?.ok()?;
    }
    Ok(())
}

async fn count_without_room_is_told(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(&[b'n'; 200], b"x").await?;
    open_here(&mut s, F).await?;
    let answer = match c.dialect {
        Dialect::Linux => s.ask(&T::Readdir { fid: F, offset: 0, count: 20 }).await?,
        _ => s.read(F, 0, 20).await?,
    };
    ensure(answer.frame.data().is_empty(), "an error, or no bytes", || answer.frame.text())
}

async fn read_past_the_end_is_empty(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    open_here(&mut s, F).await?;
    let entries = s.entries_from(F, 0, 4000).await?;
    let end = entries.last().map_or(0, |e| e.next);
    for _ in 0..2 {
        let more = s.entries(F, end, 4000).await?;
        ensure(more.is_empty(), "no entries", || format!("{} entries", more.len()))?;
    }
    Ok(())
}

async fn offset_0_begins_anew(c: &mut Cx) -> Outcome {
    let mut s = c.crowd_with(4096).await?;
    open_here(&mut s, F).await?;
    let some = s.entries(F, 0, 2000).await?;
    ensure(!some.is_empty(), "entries", || "none".to_owned())?;
    for _ in 0..2 {
        let all = s.entries_from(F, 0, 4000).await?;
        whole(without_dots(all), &BTreeSet::new())?;
    }
    Ok(())
}

async fn offset_elsewhere_is_refused(c: &mut Cx) -> Outcome {
    let mut s = c.crowd_with(4096).await?;
    open_here(&mut s, F).await?;
    let some = s.entries(F, 0, 2000).await?;
    let next = some.last().map_or(0, |e| e.next);
    let answer = s.read(F, next + 1, 2000).await?;
    prefer(answer.frame.is_error(), "an error", || answer.frame.text())
}

async fn every_cookie_reads_on(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    for i in 0..12 {
        s.file(format!("f{i}").as_bytes(), b"").await?;
    }
    open_here(&mut s, F).await?;
    let all = s.entries_from(F, 0, 4000).await?;
    let names = |entries: &[Entry]| entries.iter().map(|e| e.name.clone()).collect::<Vec<_>>();
    // Backwards, so that each is a step back.
    for at in (0..all.len()).rev() {
        let rest = s.entries_from(F, all[at].next, 4000).await?;
        ensure(
            names(&rest) == names(&all[at + 1..]),
            format!("the {} entries behind number {at}", all.len() - at - 1),
            || format!("{} entries", rest.len()),
        )?;
    }
    Ok(())
}

async fn deleting_while_reading_skips_nothing(c: &mut Cx) -> Outcome {
    let mut s = c.crowd_with(MSIZE).await?;
    open_here(&mut s, F).await?;
    let (mut seen, mut at) = (Vec::new(), 0);
    loop {
        let entries = s.entries(F, at, 1500).await?;
        let Some(last) = entries.last() else { break };
        at = last.next;
        for name in without_dots(entries) {
            s.reach(HERE, G, &[&name]).await?;
            s.remove(G).await?.ok()?;
            seen.push(name);
        }
        s.restart_clock();
    }
    whole(seen, &BTreeSet::new())?;
    let left = s.names(HERE).await?;
    ensure(left.is_empty(), "an empty directory at the end", || format!("{} names", left.len()))
}

async fn cookie_of_a_removed_entry_reads_on(c: &mut Cx) -> Outcome {
    let mut s = c.crowd_with(MSIZE).await?;
    open_here(&mut s, F).await?;
    let some = s.entries(F, 0, 1500).await?;
    let last = some.iter().rev().find(|e| e.name != b"." && e.name != b"..").cloned();
    let Some(last) = last else { return Err(End::fail("names", "only '.' and '..'")) };
    let at = some.last().map_or(0, |e| e.next);
    s.reach(HERE, G, &[&last.name]).await?;
    s.remove(G).await?.ok()?;
    let mut names = without_dots(some);
    names.extend(without_dots(s.entries_from(F, at, 1500).await?));
    whole(names, &BTreeSet::new())
}

async fn creating_while_reading_repeats_nothing(c: &mut Cx) -> Outcome {
    let mut s = c.crowd_with(MSIZE).await?;
    open_here(&mut s, F).await?;
    let some = s.entries(F, 0, 3000).await?;
    let at = some.last().map_or(0, |e| e.next);
    for i in 0..10 {
        s.file(format!("new{i}").as_bytes(), b"").await?;
    }
    let mut names = without_dots(some);
    names.extend(without_dots(s.entries_from(F, at, 3000).await?));
    // Whether the new ones are listed is open.
    names.retain(|name| !name.starts_with(b"new"));
    whole(names, &BTreeSet::new())
}

async fn new_fid_sees_what_was_made(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"a", b"").await?;
    let before = s.names(HERE).await?;
    s.file(b"b", b"").await?;
    s.reach(HERE, G, &[b"a"]).await?;
    s.remove(G).await?.ok()?;
    let after = s.names(HERE).await?;
    let right = before == [b"a".to_vec()] && after == [b"b".to_vec()];
    ensure(right, "first 'a', then 'b'", || format!("{} names, then {}", before.len(), after.len()))
}

async fn two_fids_read_apart(c: &mut Cx) -> Outcome {
    let mut s = c.crowd_with(4096).await?;
    open_here(&mut s, F).await?;
    open_here(&mut s, G).await?;
    let (mut one, mut two) = (Vec::new(), Vec::new());
    let (mut at_one, mut at_two, mut ends) = (0, 0, 0);
    while ends < 2 {
        ends = 0;
        for (fid, all, at, count) in [(F, &mut one, &mut at_one, 1000), (G, &mut two, &mut at_two, 1700)] {
            let entries = s.entries(fid, *at, count).await?;
            match entries.last() {
                Some(last) => *at = last.next,
                None => ends += 1,
            }
            all.extend(without_dots(entries));
            ensure(all.len() <= 2 * CROWD, "an end", || format!("{} entries", all.len()))?;
        }
    }
    whole(one, &BTreeSet::new())?;
    whole(two, &BTreeSet::new())
}

async fn needs_an_open_fid(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    match c.dialect {
        Dialect::Linux => s.ask(&T::Readdir { fid: HERE, offset: 0, count: 1000 }).await?.refused().map(drop),
        _ => s.read(HERE, 0, 1000).await?.refused().map(drop),
    }
}

async fn needs_a_directory(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    s.opened(b"f", F, READ).await?;
    s.ask(&T::Readdir { fid: F, offset: 0, count: 1000 }).await?.refused().map(drop)
}

async fn types_are_told(c: &mut Cx) -> Outcome {
    let mut s = c.here().await?;
    s.file(b"f", b"x").await?;
    s.dir(b"d").await?;
    open_here(&mut s, F).await?;
    let frame = s.ask(&T::Readdir { fid: F, offset: 0, count: 4000 }).await?.ok()?;
    let R::Readdir { data } = frame.message()? else { return Err(End::fail("Rreaddir", frame.text())) };
    for entry in ninefold::proto::stat::dir_entries(data.0).flatten() {
        let expected = match entry.name {
            b"f" => 8, // DT_REG
            b"d" => 4, // DT_DIR
            _ => continue,
        };
        // Some servers put the qid's type here, which no client takes for a d_type.
        let right = entry.kind == expected || entry.kind == 0;
        prefer(right, format!("type {expected} for '{}'", entry.name.escape_ascii()), || {
            format!("type {}", entry.kind)
        })?;
    }
    Ok(())
}

async fn lengths_agree_with_stat(c: &mut Cx) -> Outcome {
    use ninefold::proto::stat::{Stat, stats};
    let mut s = c.here().await?;
    s.file(b"f", b"12345").await?;
    open_here(&mut s, F).await?;
    let data = s.read(F, 0, 4000).await?.ok()?.data();
    s.reach(HERE, G, &[b"f"]).await?;
    let frame = s.ask_facts(G).await?.ok()?;
    let R::Stat { stat } = frame.message()? else { return Err(End::fail("Rstat", frame.text())) };
    let told = Stat::decode(stat.0, c.dialect).map_err(|e| End::fail("a stat record", e.to_string()))?;
    let listed = stats(&data, c.dialect).flatten().find(|stat| stat.name == b"f");
    let right = listed.is_some_and(|l| l.length == told.length && l.mode == told.mode && told.name == b"f");
    ensure(right, format!("{told:?}"), || format!("{listed:?}"))
}
