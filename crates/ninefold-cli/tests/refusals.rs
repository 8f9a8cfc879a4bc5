//! What the commands that change files do at servers that refuse a part of it, or never come to an end.

mod support;

use std::os::unix::fs::FileTypeExt;

use ninefold::proto::Dialect;
use support::relay::{Deed, Relay};
use support::share::{Share, feed};

#[test]
fn a_server_that_does_not_rename_gets_the_file_written_in_place_and_the_user_is_told() {
    for dialect in Dialect::ALL {
        for old in [Some("old and long"), None] {
            let share = Share::new();
            if let Some(old) = old {
                share.make("f", old);
            }
            let relay = Relay::new(share.place(), &["Trenameat", "Trename", "Twstat"], Deed::Refuse);
            let (code, said) = feed(&["write", &relay.url("f", dialect)], b"new");
            assert_eq!(code, Some(0), "{dialect}: {said}");
            assert!(said.contains("written in place: the server does not rename onto it"), "{dialect}: {said}");
            assert_eq!((share.read("f"), share.names(".")), (b"new".to_vec(), vec!["f".to_owned()]), "{dialect}");
        }
    }
}

#[test]
fn where_a_rename_does_not_replace_the_old_file_goes_aside_first_and_nothing_half_written_has_the_name() {
    let share = Share::new();
    share.make("f", "old");
    let relay = Relay::new(share.place(), &[], Deed::Hold);
    assert_eq!(feed(&["write", &relay.url("f", Dialect::Plan9)], b"new"), (Some(0), String::new()));
    assert_eq!((share.read("f"), share.names(".")), (b"new".to_vec(), vec!["f".to_owned()]));
    let lines = relay.lines();
    let at =
        |what: &str| lines.iter().position(|line| line.contains(what)).unwrap_or_else(|| panic!("{what}: {lines:#?}"));
    // The new file is whole and closed before it gets the name, and the old one is there until then.
    let (written, refused) = (at("← Rwrite"), at("ename 'file already exists'"));
    let renamed: Vec<_> = lines.iter().filter(|line| line.starts_with("→ Twstat")).collect();
    assert!(written < refused && refused < at("→ Tremove"), "{lines:#?}");
    let [sync, first, aside, second] = renamed[..] else { panic!("{renamed:?}") };
    assert!(sync.contains("stat '' ") && first.contains("stat 'f' "), "{renamed:?}");
    assert!(aside.contains("stat '.f.ninefold-") && second.contains("stat 'f' "), "{renamed:?}");
}

#[test]
fn a_server_that_refuses_a_part_of_the_change_leaves_the_file_as_it_was() {
    for dialect in Dialect::ALL {
        let share = Share::new();
        share.make("f", "old");
        for kinds in [&["Twrite"][..], &["Tfsync"]] {
            let relay = Relay::new(share.place(), kinds, Deed::Refuse);
            let (code, said) = feed(&["write", &relay.url("f", dialect)], b"new");
            let names = vec!["f".to_owned()];
            if kinds == ["Twrite"] {
                assert_eq!(
                    (code, share.read("f"), share.names(".")),
                    (Some(1), b"old".to_vec(), names),
                    "{dialect}: {said}"
                );
                assert!(
                    said.contains("cannot write: operation not permitted") || said.contains("prohibited"),
                    "{said}"
                );
            } else {
                // Not every server can wait for its disk.
                assert_eq!(
                    (code, share.read("f"), share.names(".")),
                    (Some(0), b"new".to_vec(), names),
                    "{dialect}: {said}"
                );
            }
        }
    }
}

#[test]
fn a_fifo_is_written_to_and_not_replaced() {
    let share = Share::new();
    rustix::fs::mkfifoat(rustix::fs::CWD, share.path("fifo"), 0o644.into()).unwrap();
    // Open for both, so that neither end waits for the other.
    let mut fifo = std::fs::File::options().read(true).write(true).open(share.path("fifo")).unwrap();
    let (code, said) = feed(&["write", &share.url("fifo", Dialect::Linux)], b"through");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("written in place: it is no plain file"), "{said}");
    let mut got = [0; 7];
    std::io::Read::read_exact(&mut fifo, &mut got).unwrap();
    assert_eq!(&got, b"through");
    assert!(std::fs::symlink_metadata(share.path("fifo")).unwrap().file_type().is_fifo());
}

#[test]
fn a_tree_without_a_bottom_is_left_in_the_end() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("9p://{}/d?dialect=9P2000.L", listener.local_addr().unwrap());
    let (told, removed) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut client = listener.accept().unwrap().0;
        client.set_nodelay(true).unwrap();
        let mut qids = 1;
        while let Some(request) = support::receive(&mut client, Dialect::Linux) {
            let word = |word: &str| request.split(' ').skip_while(|w| *w != word).nth(1).unwrap();
            let reply = match request.split(' ').next().unwrap() {
                "Tversion" => "Rversion tag -1 msize 8192 version '9P2000.L'".to_owned(),
                kind => {
                    let body = match kind {
                        "Tattach" => "Rattach tag TAG qid (1 0 d)".to_owned(),
                        "Twalk" if word("nwname") == "0" => "Rwalk tag TAG nwqid 0".to_owned(),
                        "Twalk" => {
                            // Each directory is another.
                            qids += 1;
                            format!("Rwalk tag TAG nwqid 1 0:({qids:x} 0 d)")
                        }
                        "Tlopen" => format!("Rlopen tag TAG qid ({qids:x} 0 d) iounit 0"),
                        "Treaddir" if word("offset") == "0" => {
                            "Rreaddir tag TAG count 25 [((1 0 d) 1 4 'd')]".to_owned()
                        }
                        "Treaddir" => "Rreaddir tag TAG count 0 []".to_owned(),
                        "Tclunk" => "Rclunk tag TAG".to_owned(),
                        _ => {
                            told.send(request.clone()).unwrap();
                            "Rlerror tag TAG ecode 1".to_owned()
                        }
                    };
                    body.replace("TAG", word("tag"))
                }
            };
            std::io::Write::write_all(&mut client, &support::frame(&reply, Dialect::Linux)).unwrap();
        }
    });
    let (code, said) = feed(&["rm", "-r", &url], b"");
    assert_eq!(code, Some(1));
    assert!(said.contains("more than 4096 directories deep") && said.lines().count() == 1, "{:.300}", said);
    assert_eq!(removed.try_iter().collect::<Vec<_>>(), Vec::<String>::new(), "nothing in it was seen to be removable");
}
