//! `cp FILE URL`, one small file: where nothing has the name it is there after one round trip, with the connection's own. What
//! the name is, a directory or a file or nothing, is asked only where that cannot be done.

use std::time::Instant;

use ninefold::client::FileType;
use ninefold::proto::attr::SetAttr;

use super::cx::{Cx, Record};
use super::facts::Facts;
use super::file;
use super::part::random_part_name;
use super::source::Item;
use super::trouble::{Cause, Trouble};
use crate::files::newborn::{self, Birth, Born};
use crate::place::Place;

/// Copies, and says whether that was done, or told to have failed; else nothing was, and it is to be copied as any other.
pub async fn copy(cx: &Cx<'_>, places: &[Place]) -> anyhow::Result<bool> {
    let [source @ Place::Local(path), to @ Place::Remote(address)] = places else { return Ok(false) };
    let how = &cx.how;
    let is_plain = !cx.recursive && !how.resume && !how.checksum && !cx.dry_run && !cx.strict;
    if !is_plain || source.says_directory() || !source.name().is_some_and(|name| cx.filter.takes(&name, false)) {
        return Ok(false);
    }
    let began = Instant::now();
    let Ok(mut item) = Item::here(path, true) else { return Ok(false) };
    // What cannot be looked at or read is told by who copies it. A pipe must not be opened twice.
    let is_small = |facts: Facts| facts.kind == FileType::File && facts.size <= newborn::MOST as u64;
    if !item.facts().await.is_ok_and(is_small) {
        return Ok(false);
    }
    let Ok((facts, Some(content))) = item.open().await else { return Ok(false) };
    let Ok(Some(data)) = file::small(&content, &facts).await else { return Ok(false) };
    let set = if how.preserve { how.owners.attributes(&facts, &[]) } else { None };
    // They come when the file has its name.
    let mode = set.and_then(|set| set.mode).unwrap_or_else(|| how.mode(&facts));
    let set = set.map(|set| SetAttr { mode: None, ..set });
    let name = to.name().unwrap_or_default();
    if how.preserve && set.is_none() || name.is_empty() {
        return Ok(false);
    }
    let birth = Birth { part: &random_part_name(&name), mode, set: set.as_ref(), sync: false };
    match newborn::make(cx.world, address, birth, data).await {
        Ok(Born::Not) => return Ok(false),
        Ok(born) => {
            match born {
                Born::WithoutMode(e) if how.preserve => cx.not_preserved(to, Some(e.into())),
                Born::WithoutMode(e) => {
                    cx.warn(format_args!("{to}: copied, but its permissions cannot be set: {e}"));
                }
                Born::Done | Born::Not => {}
            }
            cx.progress.found(facts.size);
            cx.progress.moved(facts.size);
            cx.progress.file_done();
            let mut record = Record::new(source, to, FileType::File);
            (record.bytes, record.took) = (facts.size, began.elapsed());
            cx.done(&record).await?;
        }
        Err(failure) => {
            let trouble =
                Trouble { file: failure.file.clone(), tried: failure.tried, cause: Cause::Server(failure.into()) };
            cx.failed(source, to, &trouble).await?;
        }
    }
    Ok(true)
}
