//! Completions and the manual, read by the programs that they are for.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};

use support::{PATIENCE, run};

/// Runs a program with a bound: its standard output and standard error. `None` when there is no such program, which
/// is told.
fn output(test: &str, dir: &Path, words: &[&str]) -> Option<(String, String)> {
    let program = words[0];
    let found = Command::new("/bin/sh").args(["-c", "command -v \"$0\"", program]).stdout(Stdio::null()).status();
    if !found.unwrap().success() {
        skip(
            test,
            &format!(
                "{program} is missing: install Debian's package {}",
                if program == "man" { "man-db" } else { program }
            ),
        );
        return None;
    }
    let mut command = Command::new("timeout");
    command.arg(PATIENCE.as_secs().to_string()).args(words).current_dir(dir).stdin(Stdio::null());
    // No start-up file of the user's, and no terminal's ways.
    command.env("HOME", dir).env("TERM", "dumb").env("LC_ALL", "C.UTF-8").env_remove("MANPAGER").env_remove("PAGER");
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{words:?}: {}\n{}", output.status, text(&output.stderr));
    Some((text(&output.stdout), text(&output.stderr)))
}

fn skip(name: &str, why: &str) {
    let line = format!("skip {name} - {why}\n");
    eprint!("{line}");
    if let Some(path) = std::env::var_os("NINEFOLD_SKIPS") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        std::io::Write::write_all(&mut file, line.as_bytes()).unwrap(); // one write: tests run side by side
    }
}

/// Puts the completions of a shell where `name` says.
fn completions(shell: &str, dir: &Path, name: &str) {
    let (code, script, stderr) = run(&["completions", shell]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{shell}");
    std::fs::write(dir.join(name), script).unwrap();
}

#[test]
fn there_are_completions_for_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let (code, script, _) = run(&["completions", shell]);
        assert_eq!(code, Some(0));
        assert!(script.contains("trust-uids"), "{shell}");
    }
}

#[test]
fn bash_completes_commands_and_flags() {
    let dir = tempfile::tempdir().unwrap();
    completions("bash", dir.path(), "script");
    // As readline asks: the words in COMP_WORDS, the function that the script named gets command, word and word before.
    let script = r#"
        source ./script
        function=$(complete -p ninefold | sed 's/.* -F \([^ ]*\) .*/\1/')
        offer() {
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
            "$function" ninefold "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            echo "${COMPREPLY[@]}"
        }
        offer ninefold c
        offer ninefold cp --re
        offer ninefold completions f"#;
    let words = ["bash", "--norc", "-c", script];
    let Some(got) = output("bash_completes_commands_and_flags", dir.path(), &words) else { return };
    let offered = "cat chmod chown cp check completions\n--recursive --resume\nfish\n";
    assert_eq!(got, (offered.to_owned(), String::new()));
}

#[test]
fn fish_completes_commands_and_flags() {
    let dir = tempfile::tempdir().unwrap();
    completions("fish", dir.path(), "script");
    let script = r#"source ./script; complete -C "ninefold c"; complete -C "ninefold cp --re""#;
    let words = ["fish", "--no-config", "-c", script];
    let Some((stdout, stderr)) = output("fish_completes_commands_and_flags", dir.path(), &words) else { return };
    let offered: Vec<_> = stdout.lines().filter_map(|line| line.split('\t').next()).collect();
    assert_eq!(offered, ["cat", "check", "chmod", "chown", "completions", "cp", "--recursive", "--resume"]);
    assert_eq!(stderr, "");
}

#[test]
fn zsh_completes_commands_and_flags() {
    let dir = tempfile::tempdir().unwrap();
    completions("zsh", dir.path(), "_ninefold");
    // Completion needs a zsh that believes in a terminal. Each read waits for what must come, or for the bound on all.
    let script = r#"
        zmodload zsh/zpty
        zpty z zsh -f -i
        zpty -w z 'fpath=($PWD $fpath); autoload -U compinit; compinit -D -u; echo rea""dy'
        zpty -r -m z text '*ready*' || exit 3
        zpty -w -n z $'ninefold cp --re\t'
        zpty -r -m z text '*--recursive*--resume*' || exit 4
        zpty -w -n z $'\C-uninefold trunc\t'
        zpty -r -m z text '*truncate*' || exit 5
        zpty -d z"#;
    let words = ["zsh", "-f", "-c", script];
    let Some((_, stderr)) = output("zsh_completes_commands_and_flags", dir.path(), &words) else { return };
    assert_eq!(stderr, "");
}

#[test]
fn the_manual_renders_without_a_complaint() {
    let dir = tempfile::tempdir().unwrap();
    let (code, page, stderr) = run(&["man"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    std::fs::write(dir.path().join("page"), page).unwrap();
    // Lines of options are longer than a terminal, but nothing may be too long for a page.
    let words = ["man", "--warnings=w", "--encoding=UTF-8", "-l", "page"];
    let Some((text, complaints)) = output("the_manual_renders_without_a_complaint", dir.path(), &words) else { return };
    assert_eq!(complaints, "");
    for part in ["ninefold(1)", "ninefold-cp(1)", "--resume", "NINEFOLD_SSH", "9p+ssh://", "EXIT STATUS"] {
        assert!(text.contains(part), "{part}");
    }
}

/// What `ninefold-bench describe` says, in short.
const DESCRIBED: &str = r#"{"name":"ninefold-bench","about":"","long_about":"","arguments":[],"commands":[
    {"name":"loopback","about":"Beside others","long_about":"","arguments":[
        {"id":"out","long":"out","help":"Where to","takes":["DIR"],"values":[],"is_rest":false,"is_required":false}],"commands":[]},
    {"name":"lab","about":"","long_about":"","arguments":[],"commands":[
        {"name":"up","about":"Make a lab","long_about":"","arguments":[
            {"id":"rtt","long":"rtt","help":"There and back","takes":["TIME"],"values":[],"is_rest":false,"is_required":false}],
         "commands":[]},
        {"name":"cut","about":"Cut the link","long_about":"","arguments":[
            {"id":"direction","long":null,"help":"","takes":["DIRECTION"],"values":["to-server","to-client"],"is_rest":false,
             "is_required":false}],"commands":[]},
        {"name":"client","about":"Run a command","long_about":"","arguments":[
            {"id":"words","long":null,"help":"It","takes":["COMMAND"],"values":[],"is_rest":true,"is_required":true}],
         "commands":[]}]}]}"#;

/// The output of our program where that program, or nothing, lies beside it.
fn beside(bench: Option<&str>, words: &[&str]) -> String {
    use std::os::unix::fs::PermissionsExt;

    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("ninefold");
    // By a process of its own: while this one has it open for writing, a child that another test starts has, too, and nobody can
    // execute it (execve(2), ETXTBSY).
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_ninefold")).arg(&program).status().unwrap().success());
    if let Some(script) = bench {
        let path = dir.path().join("ninefold-bench");
        std::fs::write(&path, format!("#!/bin/sh\n{script}")).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let output = Command::new("timeout").arg(PATIENCE.as_secs().to_string()).arg(program).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_commands_of_a_lab_are_completed_and_in_the_manual_where_the_program_that_has_them_lies_beside() {
    let describes = format!("[ \"$1\" = describe ] && cat <<'END'\n{DESCRIBED}\nEND\n");
    let script = beside(Some(&describes), &["completions", "bash"]);
    let asks = r#"
        offer() {
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
            _ninefold ninefold "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            echo "${COMPREPLY[@]}"
        }
        offer ninefold lab c
        offer ninefold lab up --
        offer ninefold lab cut to
        offer ninefold bench l
        offer ninefold bench loopback --o"#;
    let output = Command::new("bash").args(["--norc", "-c", &format!("{script}\n{asks}")]).output().unwrap();
    let offered = "cut client\n--rtt\nto-server to-client\nloopback\n--out\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), offered, "{}", String::from_utf8_lossy(&output.stderr));

    let page = beside(Some(&describes), &["man"]);
    for part in ["ninefold\\-lab\\-up", "Make a lab", "There and back", "ninefold\\-bench\\-loopback"] {
        assert!(page.contains(part), "{part}");
    }
    // Elsewhere there is all the rest.
    for bench in [None, Some("exit 1"), Some("echo '{'"), Some("echo '[3]'")] {
        let script = beside(bench, &["completions", "bash"]);
        assert!(script.contains("trust-uids") && !script.contains("--rtt TIME"), "{bench:?}");
        assert!(beside(bench, &["man"]).contains("ninefold\\-lab"), "{bench:?}");
    }
}
