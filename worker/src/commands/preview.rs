//! `digestd preview`: renders the message of one customer; the ledger is not even opened.

use crate::assemble;
use crate::cli::Exit;
use crate::cli::read::PreviewArgs;
use crate::config::{Config, Secrets};
use crate::output;
use anyhow::{Context, anyhow, bail};
use digest_activities::message::{FrozenMessage, Length, RenderInput, Rendered};
use digest_activities::source::{Customer, Data, Parameters};
use digest_workflows::operation::Period;
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
    let calendar = config.calendar()?;
    let now = Timestamp::now();
    let period = args.period.unwrap_or_else(|| Period::of(now, calendar.zone()));
    let templates = assemble::templates(config, &secrets)?;
    let source = assemble::source(config, &secrets)?;
    let (period_start, period_end) = calendar.window(period)?;
    let parameters = Parameters {
        campaign: &config.campaign.name,
        period,
        selected_at: now,
        period_start,
        // Ahead of its tick, a period shows what there is.
        period_end: period_end.min(now),
    };
    let id = source.customer_id(&parameters, &args.customer).await?;
    let page = source.customer(&parameters, &id).await?;
    let customer = match (page.customers.into_iter().next(), page.faults.first()) {
        (Some(customer), _) => customer,
        (None, Some(fault)) => {
            bail!("this customer cannot be selected: {}; it would get no message", fault.reason)
        }
        (None, None) => bail!(
            "the query [source] customers returns no row with this customer_id for {period}; is the \
             id written as the source has it, and does the customer want the message?"
        ),
    };
    let rows = source.rows_page(&parameters, std::slice::from_ref(&id)).await?.remove(&id);
    let rows = rows.unwrap_or_else(|| Ok(Vec::new())).map_err(|reason| {
        anyhow!("this customer cannot be selected: {reason}; it would get no message")
    })?;
    let still_wanted = source.still_wanted(&parameters, &customer.key).await?;
    let rendered = render(&templates, &customer, rows, now)?;
    Ok(Preview { key: customer.key.to_string(), still_wanted, message: rendered })
}

fn render(
    templates: &digest_activities::message::Templates,
    customer: &Customer,
    rows: Vec<Data>,
    selected_at: Timestamp,
) -> anyhow::Result<Option<Message>> {
    let rows: Vec<Value> = rows.into_iter().map(Value::Object).collect();
    let input = RenderInput {
        key: &customer.key,
        customer: customer.data.reveal(),
        rows: &rows,
        selected_at,
    };
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
