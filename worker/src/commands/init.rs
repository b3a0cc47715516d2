//! `digestd init`: a configuration with comments, and sample templates. Nothing is overwritten.

use crate::cli::operate::InitArgs;
use crate::cli::{Exit, UsageError};
use crate::output;
use anyhow::Context;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

const CONFIGURATION: &str = include_str!("../../templates/digestd.toml");

/// The tables of the configuration that are others for text messages.
const SMS_TABLES: &str = include_str!("../../templates/sms.toml");

/// What is written for mails, by its path in the folder.
const MAIL: [(&str, &str); 4] = [
    ("digestd.toml", CONFIGURATION),
    ("templates/subject.txt", include_str!("../../templates/subject.txt")),
    ("templates/digest.txt", include_str!("../../templates/digest.txt")),
    ("templates/digest.html", include_str!("../../templates/digest.html")),
];

/// What is written, by its path in the folder.
fn files(sms: bool) -> Vec<(&'static str, String)> {
    if sms {
        let template = include_str!("../../templates/sms.txt").to_owned();
        return vec![("digestd.toml", for_text_messages()), ("templates/sms.txt", template)];
    }
    MAIL.map(|(path, text)| (path, text.to_owned())).into()
}

/// The configuration with what text messages need instead of what mails do.
fn for_text_messages() -> String {
    let mut text = CONFIGURATION
        .replace("email as address", "phone as address")
        .replace("channel = \"email\"", "channel = \"sms\"  ")
        .replace("or \"sms\", which `digestd init --sms` writes a sample for", "or \"email\"");
    for name in ["message", "provider"] {
        if let (Some(mail), Some(sms)) = (table(&text, name), table(SMS_TABLES, name)) {
            text = text.replace(mail, sms);
        }
    }
    text
}

/// The table `name` with its comments: up to the next empty line.
fn table<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let from = text.find(&format!("[{name}]\n"))?;
    text.get(from..)?.split("\n\n").next().map(|table| table.trim_end_matches('\n'))
}

/// Writes all files into the folder that `args` names, or none where one of them exists.
pub(super) fn run(args: &InitArgs) -> anyhow::Result<Exit> {
    let files = files(args.sms);
    write(&args.dir, &files)?;
    let mut lines: Vec<String> =
        files.iter().map(|(file, _)| format!("wrote {}", args.dir.join(file).display())).collect();
    let config = args.dir.join("digestd.toml");
    let option = if args.dir == Path::new(".") {
        String::new()
    } else {
        format!(" --config {}", config.display())
    };
    lines.push(format!(
        "\nnext: make the keys marked \"yours\" in {} yours, then run `digestd{option} check`",
        config.display()
    ));
    output::print(&lines.join("\n"))?;
    Ok(Exit::Done)
}

fn write(dir: &Path, files: &[(&str, String)]) -> anyhow::Result<()> {
    let existing = files.iter().map(|(file, _)| dir.join(file)).find(|path| path.exists());
    if let Some(path) = existing {
        let text = format!(
            "{} already exists, and init overwrites nothing; name another folder (`digestd init shop`), or move it away",
            path.display()
        );
        return Err(UsageError(text).into());
    }
    for (file, text) in files {
        let path = dir.join(file);
        let create = || -> std::io::Result<()> {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            OpenOptions::new().write(true).create_new(true).open(&path)?.write_all(text.as_bytes())
        };
        create().with_context(|| {
            format!("{} cannot be written; check the folder's permissions", path.display())
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Channel, Config, ProviderKind};

    #[test]
    fn what_it_writes_loads_and_every_template_it_names_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("new/shop");
        write(&dir, &files(false)).unwrap();
        let config = Config::load(&dir.join("digestd.toml")).unwrap();
        assert!(config.message.subject.unwrap().is_file());
        assert!(config.message.text.is_file());
        assert!(config.message.html.unwrap().is_file());
    }

    #[test]
    fn a_campaign_of_text_messages_has_a_sample_too() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &files(true)).unwrap();
        let file = folder.path().join("digestd.toml");
        let config = Config::load(&file).unwrap();
        assert_eq!(config.campaign.channel, Channel::Sms);
        assert_eq!(config.provider.kind, ProviderKind::Twilio);
        assert!(config.source.customers.contains("phone as address"));
        assert!(config.message.text.is_file() && config.message.subject.is_none());
        let text = fs::read_to_string(file).unwrap();
        for of_mail in ["html", "subject", "smtp", "email as"] {
            assert!(!text.contains(of_mail), "it speaks of {of_mail}");
        }
        // Each table once, and all that are in the other one.
        let tables = |text: &str| -> Vec<String> {
            text.lines().filter(|line| line.starts_with('[')).map(str::to_owned).collect()
        };
        assert_eq!(tables(&text), tables(CONFIGURATION));
    }

    #[test]
    fn where_one_file_exists_nothing_is_written_or_changed() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("templates")).unwrap();
        let mine = folder.path().join("templates/digest.html");
        fs::write(&mine, "mine").unwrap();
        let error = write(folder.path(), &files(false)).unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Usage);
        assert!(error.to_string().contains("digest.html already exists"), "{error}");
        assert_eq!(fs::read_to_string(mine).unwrap(), "mine");
        assert!(!folder.path().join("digestd.toml").exists());
    }
}
