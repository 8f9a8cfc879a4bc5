//! The commands that read, before servers that are odd and before a terminal.

mod support;

use std::collections::HashSet;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ninefold::proto::Dialect;
use rustix::process::{Pid, Signal, kill_process};
use support::{PATIENCE, frame, ninefold, receive, run};

/// A server of 9P2000.L for one connection: `answer` makes the reply, without its tag, from a request's type and text.
/// An empty one is none.
fn serve(answer: impl Fn(&str, &str) -> String + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        while let Some(request) = receive(&mut stream, Dialect::Linux) {
            let kind = request.split(' ').next().unwrap();
            let reply = answer(kind, &request);
            if reply.is_empty() {
                continue;
            }
            let (reply, rest) = reply.split_once(' ').unwrap_or((&reply, ""));
            let reply = format!("{reply} tag {} {rest}", word(&request, "tag"));
            if stream.write_all(&frame(reply.trim_end(), Dialect::Linux)).is_err() {
                break;
            }
        }
    });
    address
}

/// What follows a field's name.
fn word<'a>(request: &'a str, field: &str) -> &'a str {
    request.split(' ').skip_while(|word| *word != field).nth(1).unwrap_or_else(|| panic!("no {field}: {request}"))
}

/// What every server here says to the requests that are alike for all.
fn usual(kind: &str, request: &str) -> String {
    match kind {
        "Tversion" => "Rversion msize 8192 version '9P2000.L'".to_owned(),
        "Tattach" => "Rattach qid (1 0 d)".to_owned(),
        "Twalk" => match word(request, "nwname") {
            "0" => "Rwalk nwqid 0".to_owned(),
            _ => "Rwalk nwqid 1 0:(1 0 d)".to_owned(),
        },
        "Tlopen" => "Rlopen qid (1 0 d) iounit 0".to_owned(),
        "Tgetattr" => "Rgetattr valid 0x7ff qid (1 0 d) mode 040755 uid 0 gid 0 nlink 2 rdev 0 size 4096 blksize 4096 \
                       blocks 8 atime_sec 0 atime_nsec 0 mtime_sec 0 mtime_nsec 0 ctime_sec 0 ctime_nsec 0 btime_sec 0 \
                       btime_nsec 0 generation 0 data_version 0"
            .to_owned(),
        "Tclunk" => "Rclunk".to_owned(),
        "Tflush" => "Rflush".to_owned(),
        _ => "Rlerror ecode 95".to_owned(),
    }
}

/// A directory that holds one name.
fn holding(request: &str, name: &str, kind: &str, dt: u8) -> String {
    match word(request, "offset") {
        "0" => format!("Rreaddir count {} [((1 0 {kind}) 1 {dt} '{name}')]", 24 + name.len()),
        _ => "Rreaddir count 0 []".to_owned(),
    }
}

#[test]
fn a_directory_in_itself_is_told() {
    let address = serve(|kind, request| match kind {
        "Treaddir" => holding(request, "self", "d", 4),
        _ => usual(kind, request),
    });
    let (code, out, err) = run(&["find", &format!("9p://{address}")]);
    assert_eq!((code, out), (Some(1), format!("9p://{address}\n9p://{address}/self\n")));
    assert!(err.contains("/self: not read: it is a directory that it lies in"), "{err}");
}

#[test]
fn a_tree_without_end_is_left_after_a_thousand_levels() {
    let files = AtomicUsize::new(2);
    let address = serve(move |kind, request| match kind {
        "Treaddir" => holding(request, "deeper", "d", 4),
        "Twalk" if word(request, "nwname") == "1" => {
            format!("Rwalk nwqid 1 0:({:x} 0 d)", files.fetch_add(1, Ordering::Relaxed))
        }
        _ => usual(kind, request),
    });
    let (code, out, err) = run(&["find", &format!("9p://{address}/")]);
    assert_eq!(code, Some(1));
    // The first, a thousand in one another, and one that is not entered.
    assert_eq!(out.lines().count(), 1002);
    assert_eq!(out.lines().last().unwrap().matches("/deeper").count(), 1001);
    assert!(err.contains("more than 1000 directories inside one another"), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
}

#[test]
fn what_cannot_be_asked_of_is_listed_with_question_marks() {
    let address = serve(|kind, request| match kind {
        "Treaddir" => holding(request, "gone", "", 8),
        "Twalk" if request.ends_with(":gone") => "Rlerror ecode 2".to_owned(),
        _ => usual(kind, request),
    });
    let (code, out, err) = run(&["ls", "-l", &format!("9p://{address}/")]);
    assert_eq!((code, out.as_str()), (Some(1), "total 0\n-????????? ? ? ? ?            ? gone\n"));
    assert!(err.contains("/gone: cannot access: file does not exist"), "{err}");
}

/// A directory that holds another with the same qid, whose mode is `inner`.
fn alike(inner: &'static str) -> SocketAddr {
    let inner_fids = Mutex::new(HashSet::new());
    serve(move |kind, request| {
        let fid = |field| word(request, field).to_owned();
        match kind {
            "Twalk" => {
                let goes_in = request.ends_with("inner") || inner_fids.lock().unwrap().contains(&fid("fid"));
                let mut inner_fids = inner_fids.lock().unwrap();
                if goes_in {
                    inner_fids.insert(fid("newfid"))
                } else {
                    inner_fids.remove(&fid("newfid"))
                };
                usual(kind, request)
            }
            "Treaddir" if inner_fids.lock().unwrap().contains(&fid("fid")) => "Rreaddir count 0 []".to_owned(),
            "Treaddir" => holding(request, "inner", "d", 4),
            "Tgetattr" if inner_fids.lock().unwrap().contains(&fid("fid")) => {
                usual(kind, request).replace("040755", inner)
            }
            "Tunlinkat" => "Runlinkat".to_owned(),
            _ => usual(kind, request),
        }
    })
}

#[test]
fn only_a_directory_that_is_the_same_in_all_is_taken_for_one_that_it_is_in() {
    let (code, _, err) = run(&["rm", "-r", &format!("9p://{}/top", alike("040755"))]);
    assert_eq!(code, Some(1));
    assert!(err.contains("it is a directory that it is in"), "{err}");
    // Several file systems exported as one tree, each with its own numbers.
    assert_eq!(run(&["rm", "-r", &format!("9p://{}/top", alike("040700"))]), (Some(0), String::new(), String::new()));
}

/// A directory of 1,000 files.
fn thousand(request: &str) -> String {
    let first: usize = word(request, "offset").parse().unwrap();
    // Two hundred fit into 8 KiB.
    let entries: Vec<String> =
        (first + 1..=(first + 200).min(1000)).map(|n| format!("(({n:x} 0 ) {n} 8 'file-{n:04}')")).collect();
    format!("Rreaddir count {} [{}]", 33 * entries.len(), entries.join(" "))
}

#[test]
fn a_connection_that_is_lost_is_told_once() {
    for command in [&["ls", "-l"][..], &["ls", "-lR"], &["ls", "--json"], &["du"], &["find", "--json"]] {
        let address = serve(|kind, request| match kind {
            "Treaddir" => thousand(request),
            // No answer to a walk.
            "Twalk" if request.contains("file-") => "Rclunk".to_owned(),
            _ => usual(kind, request),
        });
        let url = format!("9p://{address}/");
        let words: Vec<&str> = command.iter().copied().chain([url.as_str()]).collect();
        let (code, _, err) = run(&words);
        assert_eq!((code, err.lines().count()), (Some(1), 1), "{command:?} {err}");
        assert!(err.contains("broke the protocol"), "{command:?} {err}");
    }
}

#[test]
fn a_server_that_does_not_answer_is_not_asked_for_every_file() {
    for command in [&["ls", "-l"][..], &["du"], &["find", "--json"]] {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let address = serve(move |kind, request| match kind {
            "Treaddir" => thousand(request),
            "Twalk" if request.contains("file-") => {
                counted.fetch_add(1, Ordering::Relaxed);
                String::new()
            }
            _ => usual(kind, request),
        });
        let url = format!("9p://{address}/");
        let words: Vec<&str> = ["--timeout", "0.5"].iter().chain(command).copied().chain([url.as_str()]).collect();
        let (code, _, err) = run(&words);
        assert_eq!((code, err.lines().count()), (Some(1), 1), "{command:?} {err}");
        assert!(err.contains("no reply within 500ms"), "{command:?} {err}");
        assert!(asked.load(Ordering::Relaxed) <= 512, "{command:?}");
    }
}

#[test]
fn no_read_asks_for_more_than_leaves_room_for_its_header() {
    let address = serve(|kind, request| match kind {
        // As diod has it.
        "Tread" | "Treaddir" if word(request, "count").parse::<u32>().unwrap() > 8192 - 24 => {
            "Rlerror ecode 5".to_owned()
        }
        "Treaddir" => holding(request, "name", "", 8),
        _ => usual(kind, request),
    });
    let (code, out, err) = run(&["ls", &format!("9p://{address}/")]);
    assert_eq!((code, out.as_str(), err.as_str()), (Some(0), "name\n", ""));
}

#[test]
fn ctrl_c_ends_a_command_whose_reader_stands_still() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::File::create(dir.path().join("large")).unwrap().set_len(1 << 30).unwrap();
    let server = support::Running::start(&["serve", dir.path().to_str().unwrap(), "--listen", "9p://127.0.0.1:0"]);
    let url = format!("9p://{}/large", server.tcp());
    let mut cat = ninefold(&["cat", &url]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let pipe = cat.stdout.take().unwrap();
    let until = Instant::now() + PATIENCE;
    // It has begun, and no pipe takes all of it.
    while rustix::io::ioctl_fionread(&pipe).unwrap() == 0 {
        assert!(Instant::now() < until, "nothing is printed");
        std::thread::sleep(Duration::from_millis(1));
    }
    kill_process(Pid::from_child(&cat), Signal::INT).unwrap();
    let until = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = cat.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < until, "it goes on");
        std::thread::sleep(Duration::from_millis(1));
    };
    assert_eq!(status.code(), Some(130));
}

/// Runs it on a terminal of 80 columns.
fn on_a_terminal(words: &[&str]) -> String {
    let line: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let mut command = Command::new("script");
    command.args(["-qec", &format!("stty cols 80; {}", line.join(" ")), "/dev/null"]).env_remove("COLUMNS");
    let output = command.stdin(Stdio::null()).output().expect("script(1) of util-linux");
    String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n")
}

#[test]
fn a_terminal_is_told_no_control_characters_and_names_in_columns() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..20 {
        std::fs::write(dir.path().join(format!("name-{n:02}")), "").unwrap();
    }
    std::fs::write(dir.path().join("esc\x1b[2J"), "").unwrap();
    let server = support::Running::start(&["serve", dir.path().to_str().unwrap(), "--listen", "9p://127.0.0.1:0"]);
    let url = format!("9p://{}", server.tcp());
    let program = ninefold(&[]).get_program().to_str().unwrap().to_owned();
    let listed = on_a_terminal(&[&program, "ls", &url]);
    assert_eq!(listed.lines().count(), 3, "{listed}");
    assert!(listed.contains("esc?[2J  name-02"), "{listed}");
    for words in [&["ls", "-l"][..], &["ls", "-1"], &["find"], &["du", "-a"]] {
        let words: Vec<&str> = [program.as_str()].iter().chain(words).chain([&url.as_str()]).copied().collect();
        let listed = on_a_terminal(&words);
        assert!(listed.lines().count() > 20, "{words:?} {listed}");
        assert!(listed.contains("esc?[2J") && !listed.contains('\x1b'), "{words:?} {listed}");
    }
}
