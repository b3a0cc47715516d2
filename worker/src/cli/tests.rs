use super::*;
use clap::CommandFactory;
use clap::error::ErrorKind;

/// The words of a shell line: blanks part them, double quotes hold them together.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn whole(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(words(line))
}

fn examples(command: &clap::Command, found: &mut Vec<String>) {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mine: Vec<&str> = help.lines().filter(|line| line.starts_with("  digestd ")).collect();
    assert!(!mine.is_empty(), "{} has no example", command.get_name());
    found.extend(mine.into_iter().map(|line| line.split('>').next().unwrap().trim().to_owned()));
    assert!(command.get_about().is_some(), "{} says not what it is for", command.get_name());
    command.get_subcommands().for_each(|command| examples(command, found));
}

#[test]
fn every_command_has_an_example_that_works() {
    Cli::command().debug_assert();
    for command in Cli::command().get_subcommands() {
        let mut found = Vec::new();
        examples(command, &mut found);
        assert!(!found.is_empty(), "{} has no example", command.get_name());
        for example in found {
            assert!(whole(&example).is_ok(), "{example}: {}", whole(&example).unwrap_err());
        }
    }
}

#[test]
fn every_argument_says_what_it_is() {
    fn check(command: &clap::Command) {
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
        }
        command.get_subcommands().for_each(check);
    }
    check(&Cli::command());
}

#[test]
fn a_wrong_command_line_is_refused_with_the_reason() {
    for (line, part) in [
        (
            "digestd run --period 2025-W53",
            "there is no week 53 in 2025: its last ISO week is 2025-W52",
        ),
        ("digestd run --period october", "write an ISO week such as 2026-W42"),
        ("digestd run", "--period"),
        ("digestd run --period 2026-W42 --wait --dry-run", "cannot be used with"),
        ("digestd resolve digest:2026-W42:a --reason x", "--delivered|--not-delivered|--abandon"),
        ("digestd resolve digest:2026-W42:a --delivered --abandon --reason x", "cannot be used"),
        ("digestd resolve digest:2026-W42:a --delivered", "--reason"),
        ("digestd resolve --delivered --reason x", "KEY"),
        ("digestd resolve nonsense --delivered --reason x", "is not an operation key"),
        ("digestd hold --period 2026-W42 --reason ann@shop.example", "contains '@'"),
        ("digestd hold --period 2026-W42 --reason \" \"", "--reason"),
        ("digestd replay --period 2026-W42 --reason x", "--key"),
        ("digestd audit", "--period"),
        ("digestd audit --period 2025-W53", "there is no week 53 in 2025"),
        ("digestd show", "Usage"),
        ("digestd show digest:2026-W42:a --customer a", "cannot be used"),
        ("digestd demo --json", "--exit"),
        ("digestd demo --customers 0", "0 is not in"),
        ("digestd frobnicate", "unrecognized subcommand"),
    ] {
        let error = whole(line).unwrap_err();
        assert_eq!(error.exit_code(), i32::from(Exit::Usage as u8), "{line}");
        assert!(error.to_string().contains(part), "{line}: {error}");
    }
}

#[test]
fn a_message_id_is_taken_for_its_key() {
    let shown = whole("digestd show <digest.2026-W42.customer-1842@shop.example>").unwrap();
    let Command::Show(read::ShowArgs { key: Some(key), .. }) = shown.command else {
        panic!("{shown:?}");
    };
    assert_eq!(key.to_string(), "digest:2026-W42:customer-1842");
}

#[test]
fn help_and_version_end_well_and_the_configuration_can_be_named_anywhere() {
    let kind = |line: &str| Cli::try_parse_from(words(line)).unwrap_err().kind();
    assert_eq!(kind("digestd --version"), ErrorKind::DisplayVersion);
    assert_eq!(kind("digestd --help"), ErrorKind::DisplayHelp);
    let cli = Cli::try_parse_from(words("digestd policy --config shop.toml")).unwrap();
    assert_eq!(cli.config, PathBuf::from("shop.toml"));
    let help = Cli::command().render_long_help().to_string();
    assert!(help.contains("Exit codes: 0 done, 1 failed, 2 usage"), "{help}");
}

#[test]
fn the_exit_code_tells_a_wrong_configuration_from_a_failure() {
    let missing = crate::config::Config::load("/no/such/file".as_ref()).unwrap_err();
    assert_eq!(Exit::of(&missing.into()), Exit::Usage);
    let period = digest_workflows::operation::Period::parse("2025-W53").unwrap_err();
    assert_eq!(Exit::of(&anyhow::Error::new(period).context("replay")), Exit::Usage);
    assert_eq!(Exit::of(&anyhow::anyhow!("the ledger is locked")), Exit::Failed);
}

/// A document of the project.
fn document(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    std::fs::read_to_string(&path).unwrap()
}

/// The command lines in `text`: in blocks of code a line each, elsewhere between backticks.
fn command_lines(text: &str) -> Vec<String> {
    let (mut found, mut prose, mut fenced) = (Vec::new(), String::new(), false);
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            found.push(line.split(" #").next().unwrap().trim().to_owned());
        } else {
            prose.push_str(line);
            prose.push(' ');
        }
    }
    found.extend(prose.split('`').skip(1).step_by(2).map(str::to_owned));
    found.retain(|line| line.starts_with("digestd "));
    found
}

#[test]
fn every_command_of_the_runbook_and_of_the_alerts_works_as_it_is_written() {
    for (name, at_least) in [("docs/runbook.md", 80), ("deploy/prometheus/alerts.yml", 20)] {
        let lines = command_lines(&document(name));
        assert!(lines.len() >= at_least, "{name}: only {} command lines", lines.len());
        for line in lines {
            let filled = line
                .replace("{{ $labels.period }}", "2026-W49")
                .replace("PERIOD", "2026-W49")
                .replace("--period …", "--period 2026-W49")
                .replace("KEY", "digest:2026-W49:customer-1842");
            // The mere name of a command, in a sentence about it.
            let bare = line.split_whitespace().count() == 2;
            match whole(&filled) {
                Ok(_) => {}
                Err(error) if bare && error.kind() != ErrorKind::InvalidSubcommand => {}
                Err(error) => panic!("{name}: {line}: {error}"),
            }
        }
    }
}

#[test]
fn every_alert_has_its_section_in_the_runbook() {
    let (alerts, runbook) = (document("deploy/prometheus/alerts.yml"), document("docs/runbook.md"));
    let mut named = 0;
    for alert in alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(runbook.contains(&format!("\n## {alert}\n")), "the runbook has no {alert}");
        let link = format!("runbook_url: docs/runbook.md#{}\n", alert.to_lowercase());
        assert!(alerts.contains(&link), "{alert} does not lead to its section");
        named += 1;
    }
    assert!(named > 10, "only {named} alerts were found");
    let sections = runbook.lines().filter(|line| line.starts_with("## Digestd")).count();
    assert_eq!(sections, named, "the runbook has a section of no alert");
}
