//! `ninefold doctor` on whatever machine this is.

mod support;

use support::run;

#[test]
fn what_lacks_decides_the_exit_status_and_each_finding_but_the_good_ones_tells_what_to_do() {
    let (code, stdout, stderr) = run(&["doctor", "--json"]);
    assert_eq!(stderr, "");
    let findings: Vec<serde_json::Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(findings.len() > 8, "{stdout}");
    let is = |finding: &serde_json::Value, word| finding["state"] == word;
    let lacks = findings.iter().any(|finding| is(finding, "lacks"));
    assert_eq!(code, Some(lacks.into()));
    for finding in &findings {
        let advised = finding["mend"].is_string() && finding["matter"].is_string();
        assert!(is(finding, "ok") != advised, "{finding}");
    }

    let (again, text, _) = run(&["doctor"]);
    assert_eq!(again, code);
    for finding in &findings {
        let (state, name) = (finding["state"].as_str().unwrap(), finding["name"].as_str().unwrap());
        assert!(text.lines().any(|line| line.starts_with(&format!("{state:<6}{name:<20}"))), "{finding}: {text}");
    }
}

#[test]
fn buffers_are_judged_for_the_way_that_is_given() {
    let slow = |rtt: &str, rate: &str| {
        let (_, text, _) = run(&["doctor", "--rtt", rtt, "--rate", rate]);
        text.lines().filter(|line| line.starts_with("slow") && line.contains("buffer")).count()
    };
    assert_eq!(slow("0.01", "0.001"), 0);
    assert_eq!(slow("100000", "1000"), 2, "no buffer holds 12.5 TB");
    for wrong in ["0", "-1", "x", "nan", "inf"] {
        assert_eq!(run(&["doctor", "--rtt", wrong]).0, Some(2), "{wrong}");
        assert_eq!(run(&["doctor", "--rate", wrong]).0, Some(2), "{wrong}");
    }
}
