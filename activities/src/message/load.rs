//! Reading templates: each file and what it includes, once, at start, so that an edited file changes
//! nothing while a run is under way.
//!
//! Includes are found before rendering, so their names must be literals. A name is relative to the
//! folder of the template that the configuration names, and never leads out of it.

use super::unsubscribe::UNSUBSCRIBE_SECRET_VARIABLE;
use minijinja::Environment;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// One template file may have this many bytes.
const TEMPLATE_BYTES_MAX: u64 = 1_000_000;
/// A template may include, directly and indirectly, this many files.
const INCLUDES_MAX: usize = 100;

/// Why the templates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// A file cannot be read.
    #[error(
        "cannot read template {}: {source}; [message] names it relative to the configuration file",
        path.display()
    )]
    Read {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file that another one includes cannot be read.
    #[error(
        "template {by} includes {name:?}, and {} cannot be read: {source}; names are relative to the folder of the template that [message] names",
        path.display()
    )]
    Include {
        /// The including template.
        by: String,
        /// The name as it is written there.
        name: String,
        /// The path that was tried.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// An include would leave the templates' folder.
    #[error(
        "template {by} includes {name:?}, which is not inside the folder {}; move the file there",
        folder.display()
    )]
    Outside {
        /// The including template.
        by: String,
        /// The name as it is written there.
        name: String,
        /// The folder.
        folder: PathBuf,
    },
    /// A file is larger than a template may be.
    #[error("template {} has more than {TEMPLATE_BYTES_MAX} bytes; is it the right file?", path.display())]
    TooLarge {
        /// Its path.
        path: PathBuf,
    },
    /// Too many files are included.
    #[error("template {name} includes more than {INCLUDES_MAX} files; merge some")]
    TooManyIncludes {
        /// The template that the configuration names.
        name: String,
    },
    /// A template is not well-formed.
    #[error("template {name} line {line}: {detail}")]
    Syntax {
        /// The template: a path, or the setting that holds it.
        name: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong there.
        detail: String,
    },
    /// A token is asked for, and there is no secret to make it with.
    #[error(
        "template {name} uses unsubscribe_token, but {UNSUBSCRIBE_SECRET_VARIABLE} is not set; set it to 32 random bytes, printable, that the shop's endpoint knows too"
    )]
    MissingSecret {
        /// The template: a path, or the setting that holds it.
        name: String,
    },
    /// The secret is there, and empty.
    #[error(
        "{UNSUBSCRIBE_SECRET_VARIABLE} is empty; set it to 32 random bytes, printable, that the shop's endpoint knows too"
    )]
    EmptySecret,
    /// The setting `from` is not a mailbox.
    #[error(
        "[message] from is not a mailbox ({reason}); write for example Shop <digest@shop.example>"
    )]
    From {
        /// Why not.
        reason: String,
    },
    /// The setting `from` is no sender of text messages.
    #[error(
        "[message] from is no sender of text messages; write a number such as +15005550006, a short code, a name of at most 11 letters, digits and spaces, or the id of a messaging service (MG and 32 digits)"
    )]
    TextSender,
    /// The setting `unsubscribe_url` is not a URL that can stand in a header.
    #[error(
        "[message] unsubscribe_url is not usable ({reason}); write for example https://shop.example/u/{{{{ unsubscribe_token }}}}"
    )]
    UnsubscribeUrl {
        /// Why not.
        reason: String,
    },
}

/// Adds the template file `path` (relative to `base_dir`) and everything that it includes to
/// `environment`; returns the name of the file itself, by which the templates of its folder know it.
///
/// # Errors
/// [`TemplateError`] when a file cannot be read, is too large, lies outside of the folder, or is not
/// well-formed.
pub(super) fn add_file(
    environment: &mut Environment<'static>,
    base_dir: &Path,
    path: &Path,
) -> Result<String, TemplateError> {
    let file = base_dir.join(path);
    let read_error = |source| TemplateError::Read { path: file.clone(), source };
    let (Some(folder), Some(name)) = (file.parent(), file.file_name().and_then(|n| n.to_str()))
    else {
        return Err(read_error(io::Error::other("the path does not name a file in UTF-8")));
    };
    let source = read(&file)?.map_err(read_error)?;
    let folder = fs::canonicalize(folder).map_err(read_error)?;

    let mut pending = includes(name, &source);
    add(environment, name, &file, source)?;
    let mut included = 0;
    while let Some(include) = pending.pop() {
        if environment.get_template(&include.name).is_ok() {
            continue;
        }
        let file = inside(&folder, &include)?;
        let source = match read(&file)? {
            Ok(source) => source,
            Err(_) if include.optional && !file.exists() => continue,
            Err(source) => {
                let Include { by, name, .. } = include;
                return Err(TemplateError::Include { by, name, path: file, source });
            }
        };
        included += 1;
        if included > INCLUDES_MAX {
            return Err(TemplateError::TooManyIncludes { name: name.to_owned() });
        }
        pending.extend(includes(&include.name, &source));
        add(environment, &include.name, &file, source)?;
    }
    Ok(name.to_owned())
}

/// Adds a template that is a setting itself.
///
/// # Errors
/// [`TemplateError::Syntax`] when it is not well-formed.
pub(super) fn add_setting(
    environment: &mut Environment<'static>,
    name: &str,
    source: &str,
) -> Result<String, TemplateError> {
    add(environment, name, Path::new(name), source.to_owned())?;
    Ok(name.to_owned())
}

fn add(
    environment: &mut Environment<'static>,
    name: &str,
    shown: &Path,
    source: String,
) -> Result<(), TemplateError> {
    environment.add_template_owned(name.to_owned(), source).map_err(|error| TemplateError::Syntax {
        name: shown.display().to_string(),
        line: error.line().unwrap_or(1),
        detail: error.detail().map_or_else(|| error.kind().to_string(), str::to_owned),
    })
}

/// The text of a file that is not too large. The outer error is that, the inner one any other.
fn read(path: &Path) -> Result<io::Result<String>, TemplateError> {
    let bytes = fs::metadata(path).map_or(0, |metadata| metadata.len());
    if bytes > TEMPLATE_BYTES_MAX {
        return Err(TemplateError::TooLarge { path: path.to_owned() });
    }
    Ok(fs::read_to_string(path))
}

/// The path of an include, proven to lie inside `folder`, also behind symbolic links.
fn inside(folder: &Path, include: &Include) -> Result<PathBuf, TemplateError> {
    let name = Path::new(&include.name);
    let path = folder.join(name);
    let descends = name.components().all(|part| matches!(part, Component::Normal(_)));
    // A file that does not exist cannot be resolved, and is reported when it is read.
    let stays = fs::canonicalize(&path).map_or(true, |resolved| resolved.starts_with(folder));
    if descends && stays && !include.name.is_empty() {
        return Ok(path);
    }
    Err(TemplateError::Outside {
        by: include.by.clone(),
        name: include.name.clone(),
        folder: folder.to_owned(),
    })
}

/// A template that another one names.
#[derive(Debug, PartialEq, Eq)]
struct Include {
    by: String,
    name: String,
    /// Whether rendering can do without it: `ignore missing`, or one of a list.
    optional: bool,
}

/// The templates that `source` names in its `include`, `import`, `from` and `extends` tags.
fn includes(by: &str, source: &str) -> Vec<Include> {
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(start) = ["{%", "{#"].iter().filter_map(|open| rest.find(open)).min() {
        let (comment, after) = (rest[start..].starts_with("{#"), &rest[start + 2..]);
        let Some((tag, next)) = after.split_once(if comment { "#}" } else { "%}" }) else { break };
        rest = next;
        if comment {
            continue;
        }
        let tag = tag.trim_matches(['-', '+']).trim();
        match tag.split_whitespace().next() {
            Some("raw") => rest = rest.split_once("endraw").map_or("", |(_, after)| after),
            Some("include" | "import" | "from" | "extends") => {
                let optional = tag.contains("ignore missing") || tag.contains('[');
                found.extend(literals(tag).map(|name| Include {
                    by: by.to_owned(),
                    name: name.to_owned(),
                    optional,
                }));
            }
            _ => {}
        }
    }
    found
}

/// The quoted strings of a tag.
fn literals(tag: &str) -> impl Iterator<Item = &str> {
    let mut rest = tag;
    std::iter::from_fn(move || {
        let start = rest.find(['"', '\''])?;
        let quote = char::from(*rest.as_bytes().get(start)?);
        let (literal, after) = rest[start + 1..].split_once(quote)?;
        rest = after;
        Some(literal)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, source) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, source).unwrap();
        }
        folder
    }

    fn load(folder: &tempfile::TempDir) -> Result<String, TemplateError> {
        let mut environment = Environment::new();
        let name = add_file(&mut environment, folder.path(), Path::new("t/main.txt"))?;
        Ok(environment.get_template(&name).unwrap().render(()).unwrap())
    }

    #[test]
    fn includes_are_read_with_what_they_include() {
        let folder = folder(&[
            ("t/main.txt", "a{% include 'parts/b.txt' %}{# {% include 'gone.txt' %} #}"),
            ("t/parts/b.txt", "b{%- include \"c.txt\" -%}{% include 'no.txt' ignore missing %}"),
            ("t/c.txt", "c{% raw %}{% include 'gone.txt' %}{% endraw %}"),
        ]);
        assert_eq!(load(&folder).unwrap(), "abc{% include 'gone.txt' %}");
    }

    #[test]
    fn nothing_outside_of_the_folder_is_read() {
        for name in ["../secret.txt", "/etc/hostname", "./../secret.txt", "link.txt", ""] {
            let main = format!("{{% include '{name}' %}}");
            let folder = folder(&[("t/main.txt", &main), ("secret.txt", "secret")]);
            std::os::unix::fs::symlink(
                folder.path().join("secret.txt"),
                folder.path().join("t/link.txt"),
            )
            .unwrap();
            assert!(matches!(load(&folder), Err(TemplateError::Outside { .. })), "{name}");
        }
    }

    #[test]
    fn errors_name_file_and_line() {
        let missing = folder(&[("t/main.txt", "{% include 'gone.txt' %}")]);
        let text = load(&missing).unwrap_err().to_string();
        assert!(text.starts_with("template main.txt includes \"gone.txt\""), "{text}");

        let broken = folder(&[("t/main.txt", "{% include 'b.txt' %}"), ("t/b.txt", "\n{% if %}")]);
        let text = load(&broken).unwrap_err().to_string();
        assert!(text.contains("t/b.txt line 2: "), "{text}");

        let none = folder(&[]);
        let text = load(&none).unwrap_err().to_string();
        assert!(text.starts_with("cannot read template ") && text.contains("t/main.txt"), "{text}");

        let large = folder(&[("t/main.txt", &"x".repeat(1_000_001))]);
        assert!(matches!(load(&large), Err(TemplateError::TooLarge { .. })));
    }

    #[test]
    fn includes_have_a_bound() {
        let names: Vec<String> = (0..=INCLUDES_MAX).map(|n| format!("t/{n}.txt")).collect();
        let include = |n: usize| format!("{{% include '{n}.txt' %}}");
        let main = (0..=INCLUDES_MAX).map(include).collect::<Vec<_>>().concat();
        let mut files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
        files.push(("t/main.txt", &main));
        assert!(matches!(load(&folder(&files)), Err(TemplateError::TooManyIncludes { .. })));
    }

    #[test]
    fn the_scan_finds_every_way_to_name_a_template() {
        let source = "{% extends 'a' %}{%+ import \"b\" as b %}{% from 'c' import d, e %}\
            {%- include ['f', \"g\"] -%}{% if x == 'no' %}{% include '";
        let names: Vec<_> =
            includes("m", source).into_iter().map(|i| (i.name, i.optional)).collect();
        let expected = [("a", false), ("b", false), ("c", false), ("f", true), ("g", true)];
        assert_eq!(names, expected.map(|(name, optional)| (name.to_owned(), optional)));
    }
}
