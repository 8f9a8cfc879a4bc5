//! `ninefold serve` from the outside.

mod support;

use std::io::{Read, Write};
use std::process::Stdio;

use ninefold::proto::Dialect;
use rustix::process::Signal;
use support::share::feed;
use support::{Running, connect, frame, ninefold, receive, run, version};

#[test]
fn serve_prints_an_address_to_paste_and_ends_on_sigterm_with_0() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "served\n").unwrap();
    let serve = Running::start(&["serve", dir.path().to_str().unwrap(), "--listen", "9p://localhost:0"]);
    let address = serve.tcp();
    for dialect in Dialect::ALL {
        let read = run(&["cat", &format!("9p://{address}/file?dialect={dialect}")]);
        assert_eq!(read, (Some(0), "served\n".to_owned(), String::new()), "{dialect}");
    }
    // One that is connected and idle does not hold up the end.
    let _idle = connect(address);
    serve.signal(Signal::TERM);
    assert_eq!(serve.end(), (Some(0), vec![]));
}

#[test]
fn a_unix_socket_is_gone_after_its_server() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "served\n").unwrap();
    let socket = dir.path().join("s");
    let url = format!("9p+unix:{}", socket.display());
    let serve = Running::start(&["serve", dir.path().to_str().unwrap(), "--listen", &url]);
    assert!(serve.line().ends_with(&format!(" at {url}")));
    assert_eq!(run(&["cat", &format!("{url}:/file")]).1, "served\n");
    serve.signal(Signal::INT);
    assert_eq!(serve.end().0, Some(0));
    assert!(!socket.exists());
}

#[test]
fn over_standard_input_and_output_only_replies_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut serve = ninefold(&["serve", "--stdio", dir.path().to_str().unwrap()]);
    let mut serve = serve.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = serve.stdin.take().unwrap();
    input.write_all(&frame(&version(Dialect::Linux), Dialect::Linux)).unwrap();
    let mut output = serve.stdout.take().unwrap();
    assert_eq!(receive(&mut output, Dialect::Linux).unwrap(), "Rversion tag -1 msize 8192 version '9P2000.L'");
    drop(input);
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
    assert_eq!(serve.wait().unwrap().code(), Some(0));
}

#[test]
fn requests_in_a_file_are_answered_into_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let (requests, replies) = (dir.path().join("t"), dir.path().join("r"));
    std::fs::write(&requests, frame(&version(Dialect::Linux), Dialect::Linux)).unwrap();
    let mut serve = ninefold(&["serve", "--stdio", dir.path().to_str().unwrap()]);
    serve.stdin(std::fs::File::open(&requests).unwrap()).stdout(std::fs::File::create(&replies).unwrap());
    assert_eq!(serve.status().unwrap().code(), Some(0));
    let mut replies = std::fs::File::open(&replies).unwrap();
    assert!(receive(&mut replies, Dialect::Linux).unwrap().starts_with("Rversion"));
}

#[test]
fn over_tls_the_line_to_paste_has_the_pin_and_another_certificate_is_refused() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(dir.path().join("file"), vec![b'x'; 3 << 20]).unwrap();
    let serve = |more: &[&str]| {
        let args = [&["serve", dir.path().to_str().unwrap(), "--listen", "9ps://127.0.0.1:0"], more].concat();
        let serve = Running::spawn(ninefold(&args).env("XDG_STATE_HOME", state.path()));
        let url = serve.line().split_once(" at ").unwrap().1.to_owned();
        let (place, pin) = url.split_once("?pin=").expect("the pin");
        (serve, place.to_owned(), pin.to_owned())
    };
    let (first, place, pin) = serve(&[]);
    for dialect in Dialect::ALL {
        let (code, read, _) = run(&["cat", &format!("{place}/file?pin={pin}&dialect={dialect}")]);
        assert_eq!((code, read.len()), (Some(0), 3 << 20), "{dialect}");
    }
    assert_eq!(feed(&["write", &format!("{place}/new?pin={pin}")], &vec![b'y'; 3 << 20]).0, Some(0));
    assert_eq!(std::fs::metadata(dir.path().join("new")).unwrap().len(), 3 << 20);
    // Data connections have TLS as well; where they could not, bytes go in messages.
    std::fs::write(dir.path().join("large"), vec![b'z'; 16 << 20]).unwrap();
    let here = state.path().join("large");
    for (dialect, replies) in [("9P2000.L.n1", "\"Rstream\":1"), ("9P2000.s", "\"Rread\":")] {
        let url = format!("{place}/large?pin={pin}&dialect={dialect}");
        let (code, _, stats) = run(&["cp", "--streams", "1", "--stats", "-", &url, here.to_str().unwrap()]);
        assert!(code == Some(0) && stats.contains(replies), "{dialect}: {stats}");
        assert!(std::fs::read(&here).unwrap() == vec![b'z'; 16 << 20], "{dialect}");
    }
    let (code, _, said) = run(&["cat", &format!("{place}/file")]);
    assert!(code == Some(1) && said.contains("?pin=sha256:"), "{said}");
    let wrong = if pin.ends_with('0') { '1' } else { '0' };
    let (code, _, said) = run(&["cat", &format!("{place}/file?pin={}{wrong}", &pin[..pin.len() - 1])]);
    assert!(code == Some(1) && said.contains("this is another server"), "{said}");
    first.signal(Signal::TERM);
    assert_eq!(first.end().0, Some(0));
    // The certificate is kept, and may as well be named.
    let kept = state.path().join("ninefold/server.pem");
    let (_second, _, again) = serve(&[]);
    let (_third, _, named) = serve(&["--cert", kept.to_str().unwrap()]);
    assert_eq!((&again, &named), (&pin, &pin));
    let (code, _, said) = run(&["serve", dir.path().to_str().unwrap(), "--listen", "9ps://0.0.0.0:0"]);
    assert!(code == Some(2) && said.contains("--insecure"), "{said}");
}

#[test]
fn an_address_beyond_loopback_needs_insecure() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().to_str().unwrap();
    for url in ["9p://0.0.0.0:0", "9p://[::]:0", "9p://192.0.2.1:0"] {
        let (code, stdout, stderr) = run(&["serve", dir, "--listen", url]);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{url}");
        assert!(stderr.contains("--insecure"), "{stderr}");
    }
    let serve = Running::start(&["serve", dir, "--listen", "9p://0.0.0.0:0", "--insecure"]);
    assert!(serve.line().contains(" at 9p://0.0.0.0:"));
}

#[test]
fn an_export_is_found_by_its_name_and_by_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    std::fs::write(path.join("file"), "exported\n").unwrap();
    let export = format!("pub={}", path.display());
    let serve = Running::start(&["serve", "--export", &export, "--listen", "9p://127.0.0.1:0"]);
    let address = serve.tcp();
    for query in ["?aname=pub".to_owned(), format!("?aname={}", path.display()), String::new()] {
        assert_eq!(run(&["cat", &format!("9p://{address}/file{query}")]).1, "exported\n", "{query}");
    }
    let (code, stdout, stderr) = run(&["cat", &format!("9p://{address}/file?aname=no")]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("no such export") && stderr.contains("it has no tree 'no'"), "{stderr}");
}

#[test]
fn two_exports_of_one_name_are_refused() {
    let (code, _, stderr) = run(&["serve", "--export", "a=/", "--export", "a=/"]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("'a'"), "{stderr}");
}
