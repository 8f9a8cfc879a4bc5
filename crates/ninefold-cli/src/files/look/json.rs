//! A file as JSON: `path` as it is printed, `url` with all that an address needs as `%HH`, `name`, and every field of
//! [`Metadata`] under its own, null where the dialect does not tell it. Times are `{"sec": -1, "nsec": 5}`, names as
//! [`text`] has them.

use ninefold::client::{FileType, Metadata};
use ninefold::proto::Qid;
use ninefold::proto::attr::Time;
use serde_json::{Map, Value, json};

use super::tree::Item;
use crate::given::Remote;
use crate::out::text;

/// The kind of a file (inode(7)).
fn kind(kind: FileType) -> &'static str {
    match kind {
        FileType::File => "file",
        FileType::Dir => "directory",
        FileType::Symlink => "symlink",
        FileType::CharDevice => "char_device",
        FileType::BlockDevice => "block_device",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}

/// Whatever is known of a file at `below`.
pub fn item(given: &Remote, below: &[u8], item: &Item) -> Value {
    let name = match below.rsplit(|&b| b == b'/').next() {
        Some(b"") | None => given.name(),
        Some(name) => name.to_vec(),
    };
    let mut object = Map::new();
    object.insert("path".to_owned(), text(&given.join(below)));
    object.insert("url".to_owned(), given.address(below).to_string().into());
    object.insert("name".to_owned(), text(&name));
    match item.metadata() {
        Some(metadata) => fields(&mut object, metadata),
        None => {
            object.insert("kind".to_owned(), kind(item.kind).into());
            object.insert("qid".to_owned(), qid(item.qid));
        }
    }
    if let Some(Ok(target)) = &item.target {
        object.insert("link_target".to_owned(), text(target));
    }
    object.into()
}

fn fields(object: &mut Map<String, Value>, metadata: &Metadata) {
    // Named one by one: a field that is added must be written here.
    let Metadata {
        qid: its_qid,
        kind: its_kind,
        mode,
        plan9_mode,
        size,
        nlink,
        uid,
        gid,
        owner,
        group,
        modifier,
        device,
        block_size,
        blocks,
        accessed,
        modified,
        changed,
        born,
        link_target,
    } = metadata;
    let name = |name: &Option<Vec<u8>>| name.as_deref().map_or(Value::Null, text);
    let time = |time: &Time| json!({ "sec": time.sec, "nsec": time.nsec });
    let fields = [
        ("kind", kind(*its_kind).into()),
        ("qid", qid(*its_qid)),
        ("mode", json!(mode)),
        ("plan9_mode", json!(plan9_mode)),
        ("size", json!(size)),
        ("nlink", json!(nlink)),
        ("uid", json!(uid)),
        ("gid", json!(gid)),
        ("owner", name(owner)),
        ("group", name(group)),
        ("modifier", name(modifier)),
        ("device", json!(device)),
        ("block_size", json!(block_size)),
        ("blocks", json!(blocks)),
        ("accessed", time(accessed)),
        ("modified", time(modified)),
        ("changed", changed.as_ref().map_or(Value::Null, time)),
        ("born", born.as_ref().map_or(Value::Null, time)),
        ("link_target", name(link_target)),
    ];
    object.extend(fields.map(|(key, value)| (key.to_owned(), value)));
}

/// A qid; its type as the letters that a trace has.
fn qid(qid: Qid) -> Value {
    json!({ "type": qid.kind.letters().collect::<String>(), "version": qid.version, "path": qid.path })
}
