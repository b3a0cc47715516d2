//! `digestd preview`: renders the message of one customer; the ledger is not even opened.

use crate::assemble;
use crate::cli::Exit;
use crate::cli::read::PreviewArgs;
use crate::config::{Config, Secrets};
use crate::output;
use crate::selected::Selected;
use anyhow::{Context, bail};
use digest_activities::message::{FrozenMessage, Length, RenderInput, Rendered};
use digest_activities::source::Customer;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// What a preview shows.
#[derive(Debug, Serialize)]
struct Preview {
    key: String,
    /// What the consent query says right now.
    still_wanted: bool,
    /// Absent where there is nothing to send.
    message: Option<Message>,
}

#[derive(Debug, Serialize)]
struct Message {
    headers: Vec<(String, String)>,
    /// Absent in a text message.
    subject: Option<String>,
    text: String,
    html: Option<String>,
    /// How long a text message is; absent in a mail.
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<Length>,
    content_hash: String,
    #[serde(skip)]
    mime: Option<Vec<u8>>,
}

/// Renders and shows, or writes, one message.
///
/// # Errors
/// An unreachable source, no such customer, or a message that cannot be rendered.
pub(super) async fn run(config: Config, args: PreviewArgs) -> anyhow::Result<Exit> {
    let preview = preview(&config, &args).await?;
    if args.json {
        output::print_json(&preview)?;
        return Ok(Exit::Done);
    }
    if !preview.still_wanted {
        output::say(
            "still_wanted says no for this customer right now, so nothing would be sent to them",
        )?;
    }
    match (&preview.message, &args.out) {
        (None, _) => output::print(&format!(
            "{}: nothing to send, because the customer has no rows and message.when_empty is \
             \"skip\"",
            preview.key
        ))?,
        (Some(message), None) => output::print(&text(message))?,
        (Some(message), Some(folder)) => {
            let written = write(message, folder)?;
            output::print(&written.join("\n"))?;
        }
    }
    Ok(Exit::Done)
}

async fn preview(config: &Config, args: &PreviewArgs) -> anyhow::Result<Preview> {
    let secrets = Secrets::from_env()?;
    let templates = assemble::templates(config, &secrets)?;
    let one = Selected::read(config, &secrets, args.period, &args.customer).await?;
    let Selected { customer, rows, selected_at, still_wanted, .. } = one;
    let rendered = render(&templates, &customer, &rows, selected_at)?;
    Ok(Preview { key: customer.key.to_string(), still_wanted, message: rendered })
}

fn render(
    templates: &digest_activities::message::Templates,
    customer: &Customer,
    rows: &[Value],
    selected_at: Timestamp,
) -> anyhow::Result<Option<Message>> {
    let input =
        RenderInput { key: &customer.key, customer: customer.data.reveal(), rows, selected_at };
    match templates.render(&input) {
        Ok(Rendered::Message(message)) => Ok(Some(parts(&message))),
        Ok(Rendered::NothingToSend) => Ok(None),
        Err(failure) => bail!("{} would end as a dead letter: {failure}", customer.key),
    }
}

fn parts(message: &FrozenMessage) -> Message {
    let mut headers = vec![
        ("From".to_owned(), message.from.clone()),
        ("To".to_owned(), message.recipient.reveal().clone()),
    ];
    headers.extend(message.headers.reveal().iter().cloned());
    let length = message.length();
    let in_mail = length.is_none();
    Message {
        headers,
        subject: in_mail.then(|| message.subject.reveal().clone()),
        text: message.text.reveal().clone(),
        html: message.html.as_ref().map(|html| html.reveal().clone()),
        length,
        content_hash: message.content_hash.clone(),
        mime: in_mail.then(|| message.mime.reveal().clone()),
    }
}

fn text(message: &Message) -> String {
    let mut text = String::new();
    for (name, value) in &message.headers {
        text.push_str(&format!("{name}: {value}\n"));
    }
    let html = match &message.html {
        Some(html) => {
            format!("\n\n(an HTML part of {} characters; --out writes it)", html.chars().count())
        }
        None => String::new(),
    };
    if let Some(subject) = &message.subject {
        text.push_str(&format!("Subject: {subject}\n"));
    }
    if let Some(length) = &message.length {
        text.push_str(&format!("Length: {length}\n"));
    }
    format!("{text}\n{}{html}", message.text.trim_end_matches('\n'))
}

/// Writes each part into a file of its own; those of an earlier preview are replaced.
fn write(message: &Message, folder: &Path) -> anyhow::Result<Vec<String>> {
    let files: [(&str, Option<&[u8]>); 4] = [
        ("message.eml", message.mime.as_deref()),
        ("subject.txt", message.subject.as_ref().map(String::as_bytes)),
        ("text.txt", Some(message.text.as_bytes())),
        ("html.html", message.html.as_ref().map(String::as_bytes)),
    ];
    let cannot = || format!("{} cannot be written; check the folder", folder.display());
    fs::create_dir_all(folder).with_context(cannot)?;
    let mut written = Vec::new();
    for (name, content) in files {
        let path = folder.join(name);
        if let Some(content) = content {
            fs::write(&path, content).with_context(cannot)?;
            written.push(format!("wrote {}", path.display()));
            continue;
        }
        // What an earlier preview had must not be taken for a part of this one.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(cannot);
            }
            _ => {}
        }
    }
    Ok(written)
}
