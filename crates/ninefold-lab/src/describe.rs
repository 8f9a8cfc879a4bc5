//! The command line of `ninefold-bench` as one JSON document: from it `ninefold` makes the completions and the manual of what it
//! becomes this program for, and knows nothing of it otherwise.

use clap::{Arg, Command};
use serde::Serialize;

/// A command, its options and words, and its own commands; what is hidden is left out.
#[derive(Serialize)]
pub struct Described {
    name: String,
    about: String,
    long_about: String,
    arguments: Vec<Argument>,
    commands: Vec<Described>,
}

#[derive(Serialize)]
struct Argument {
    id: String,
    /// None for a word.
    long: Option<String>,
    help: String,
    /// What it takes, one for each value; none for a flag.
    takes: Vec<String>,
    /// What a value may be, where that is a closed list.
    values: Vec<String>,
    /// All that follows.
    is_rest: bool,
    is_required: bool,
}

pub fn command(command: &Command) -> Described {
    let text = |text: Option<&clap::builder::StyledStr>| text.map_or(String::new(), ToString::to_string);
    Described {
        name: command.get_name().to_owned(),
        about: text(command.get_about()),
        long_about: text(command.get_long_about()),
        arguments: command.get_arguments().filter(|argument| !argument.is_hide_set()).map(argument).collect(),
        commands: command.get_subcommands().filter(|command| !command.is_hide_set()).map(self::command).collect(),
    }
}

fn argument(argument: &Arg) -> Argument {
    let takes = if argument.get_action().takes_values() { argument.get_value_names().unwrap_or_default() } else { &[] };
    let values = argument.get_possible_values().into_iter().filter(|value| !value.is_hide_set());
    Argument {
        id: argument.get_id().to_string(),
        long: argument.get_long().map(str::to_owned),
        help: argument.get_help().map_or(String::new(), ToString::to_string),
        takes: takes.iter().map(ToString::to_string).collect(),
        values: values.map(|value| value.get_name().to_owned()).collect(),
        is_rest: argument.is_trailing_var_arg_set(),
        is_required: argument.is_required_set(),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn find<'d>(described: &'d Described, name: &str) -> &'d Described {
        described.commands.iter().find(|command| command.name == name).expect(name)
    }

    #[test]
    fn all_that_is_not_hidden_is_described_with_what_it_takes() {
        let all = command(&crate::Arguments::command());
        assert_eq!(
            all.commands.iter().map(|command| command.name.as_str()).collect::<Vec<_>>(),
            ["loopback", "round-trips", "thesis", "calibrate", "streams", "lab"]
        );
        let lab = find(&all, "lab");
        let names: Vec<&str> = lab.commands.iter().map(|command| command.name.as_str()).collect();
        assert_eq!(names, ["up", "client", "server", "set", "cut", "heal", "reset", "freeze", "thaw", "stats", "down"]);
        let of = |name: &str, id: &str| find(lab, name).arguments.iter().find(|argument| argument.id == id).expect(id);
        assert_eq!(
            (of("up", "rtt").long.as_deref(), &of("up", "rtt").takes[..]),
            (Some("rtt"), &["TIME".to_owned()][..])
        );
        assert!(of("stats", "json").takes.is_empty() && !of("stats", "json").help.is_empty());
        assert_eq!(of("freeze", "end").values, ["client", "server"]);
        assert!(of("freeze", "end").is_required && of("client", "words").is_rest);
        assert!(find(lab, "up").long_about.contains("lab down"));
    }
}
