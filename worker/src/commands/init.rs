//! `digestd init`: a configuration with comments, and sample templates. Nothing is overwritten.

use crate::cli::operate::InitArgs;
use crate::cli::{Exit, UsageError};
use crate::output;
use anyhow::Context;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

/// What is written, by its path in the folder.
const FILES: [(&str, &str); 4] = [
    ("digestd.toml", include_str!("../../templates/digestd.toml")),
    ("templates/subject.txt", include_str!("../../templates/subject.txt")),
    ("templates/digest.txt", include_str!("../../templates/digest.txt")),
    ("templates/digest.html", include_str!("../../templates/digest.html")),
];

/// Writes all files into the folder that `args` names, or none where one of them exists.
pub(super) fn run(args: &InitArgs) -> anyhow::Result<Exit> {
    write(&args.dir)?;
    let mut lines: Vec<String> =
        FILES.iter().map(|(file, _)| format!("wrote {}", args.dir.join(file).display())).collect();
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

fn write(dir: &Path) -> anyhow::Result<()> {
    let existing = FILES.iter().map(|(file, _)| dir.join(file)).find(|path| path.exists());
    if let Some(path) = existing {
        let text = format!(
            "{} already exists, and init overwrites nothing; name another folder (`digestd init shop`), or move it away",
            path.display()
        );
        return Err(UsageError(text).into());
    }
    for (file, text) in FILES {
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
    use crate::config::Config;

    #[test]
    fn what_it_writes_loads_and_every_template_it_names_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("new/shop");
        write(&dir).unwrap();
        let config = Config::load(&dir.join("digestd.toml")).unwrap();
        assert!(config.message.subject.unwrap().is_file());
        assert!(config.message.text.is_file());
        assert!(config.message.html.unwrap().is_file());
    }

    #[test]
    fn where_one_file_exists_nothing_is_written_or_changed() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("templates")).unwrap();
        let mine = folder.path().join("templates/digest.html");
        fs::write(&mine, "mine").unwrap();
        let error = write(folder.path()).unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Usage);
        assert!(error.to_string().contains("digest.html already exists"), "{error}");
        assert_eq!(fs::read_to_string(mine).unwrap(), "mine");
        assert!(!folder.path().join("digestd.toml").exists());
    }
}
