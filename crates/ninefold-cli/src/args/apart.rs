//! The commands of programs that are built apart, for completions and manual: from what such a program tells of its command line.
//! The parser passes their words on as they are.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command};
use serde_json::Value;

/// `command` with `bench` and `lab` as `described` has them.
pub fn with(command: Command, described: &Value) -> Command {
    let all = commands(described);
    let (lab, benches): (Vec<&Value>, Vec<&Value>) = all.iter().partition(|command| text(command, "name") == "lab");
    // What holds for every command of ours is unknown there: a hidden one of that name keeps it out of what is below.
    let global: Vec<Arg> = command.get_arguments().filter(|argument| argument.is_global_set()).cloned().collect();
    let kept_out = || global.iter().cloned().map(|argument| argument.global(false).hide(true));
    let command = command.mut_subcommand("bench", |bench| in_place_of(&bench, benches.into_iter()).args(kept_out()));
    command.mut_subcommand("lab", |own| in_place_of(&own, lab.into_iter().flat_map(commands)).args(kept_out()))
}

/// A command with others where it had words.
fn in_place_of<'v>(command: &Command, others: impl Iterator<Item = &'v Value>) -> Command {
    let mut whole = Command::new(command.get_name().to_owned()).subcommands(others.map(made));
    whole = whole.disable_help_flag(true).disable_help_subcommand(true);
    if let Some(about) = command.get_about() {
        whole = whole.about(about.clone());
    }
    if let Some(about) = command.get_long_about() {
        whole = whole.long_about(about.clone());
    }
    whole
}

fn made(described: &Value) -> Command {
    let long = text(described, "long_about");
    let mut command = Command::new(text(described, "name").to_owned()).about(text(described, "about").to_owned());
    if !long.is_empty() {
        command = command.long_about(long.to_owned());
    }
    command.args(list(described, "arguments").iter().map(argument)).subcommands(commands(described).iter().map(made))
}

fn argument(described: &Value) -> Arg {
    let is = |key: &str| described[key].as_bool().unwrap_or(false);
    let strings =
        |key: &str| list(described, key).iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>();
    let (takes, values) = (strings("takes"), strings("values"));
    let mut argument = Arg::new(text(described, "id").to_owned()).help(text(described, "help").to_owned());
    if let Some(long) = described["long"].as_str() {
        argument = argument.long(long.to_owned());
    }
    if takes.is_empty() {
        return argument.action(ArgAction::SetTrue);
    }
    argument = argument.value_names(takes).required(is("is_required"));
    if is("is_rest") {
        argument = argument.num_args(1..).trailing_var_arg(true);
    }
    if values.is_empty() { argument } else { argument.value_parser(PossibleValuesParser::new(values)) }
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn commands(value: &Value) -> &[Value] {
    list(value, "commands")
}
