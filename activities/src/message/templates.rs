//! The templates of one campaign, and rendering one operation with them.
//!
//! A template sees every column of the customer's row by its name, and [`RESERVED_NAMES`]. It is
//! strict: what is undefined cannot be printed, tested or iterated, and NULL cannot be printed, so a
//! customer without a first name is never greeted as "none"; `{{ first_name or "there" }}` and
//! `{% if first_name %}` are how a template says what it wants instead. HTML is escaped in the HTML
//! part, its includes among it, and nowhere else.

use super::WhenEmpty;
use super::address::{Address, Mailbox, one_line};
use super::load::{TemplateError, add_file, add_setting};
use super::mime::{self, Parts};
use super::sms::{self, Sender, TEXT_UNITS_MAX, check_number};
use super::unsubscribe::UnsubscribeSecret;
use super::{
    FrozenMessage, HEADER_CHARS_MAX, MESSAGE_BYTES_MAX, MessageSettings, Redacted, RenderInput,
    Rendered,
};
use digest_workflows::operation::{Failure, FailureClass};
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};
use std::collections::BTreeMap;
use std::path::Path;
use url::Url;

/// The names that templates see besides the columns. A column of the same name is hidden by them.
pub const RESERVED_NAMES: [&str; 6] =
    ["rows", "period", "campaign", "operation_key", "unsubscribe_url", "unsubscribe_token"];

/// The work that one template may do for one message: about a million instructions, or 64 bytes of
/// produced data each, so that none runs for ever or fills the memory.
const FUEL_MAX: u64 = 1_000_000;
/// A URL must fit on one line of 998 octets (RFC 5322, 2.1.1) with `List-Unsubscribe: <>`.
const URL_BYTES_MAX: usize = 970;
/// A failure's code quotes this much of a template's expression.
const EXPRESSION_BYTES_MAX: usize = 60;

/// The templates of one campaign, read and parsed. Rendering takes no lock and reads no file.
#[derive(Debug)]
pub struct Templates {
    from: Template,
    text: Template,
    /// What a mail has beside them; without it the message is a text message.
    mail: Option<Mail>,
    unsubscribe_url: Option<Template>,
    when_empty: WhenEmpty,
    secret: Option<UnsubscribeSecret>,
}

#[derive(Debug)]
struct Mail {
    subject: Template,
    html: Option<Template>,
}

impl Templates {
    /// Reads and parses all templates that `settings` names, relative to `base_dir` (the folder of
    /// the configuration file), and what they include. `secret` is the value of
    /// `DIGESTD_UNSUBSCRIBE_SECRET`, if it is set.
    ///
    /// # Errors
    /// [`TemplateError`], which names file and line, or the variable that is missing.
    pub fn load(
        settings: &MessageSettings,
        base_dir: &Path,
        secret: Option<&Redacted<String>>,
    ) -> Result<Self, TemplateError> {
        let secret = secret
            .map(|secret| UnsubscribeSecret::new(secret).ok_or(TemplateError::EmptySecret))
            .transpose()?;
        let file = |path: &Path, escape| {
            Template::new(escape, |environment| add_file(environment, base_dir, path))
        };
        let setting = |name, source: &str| {
            Template::new(AutoEscape::None, |environment| add_setting(environment, name, source))
        };
        let mail = |subject: &Path| -> Result<Mail, TemplateError> {
            let html = settings.html.as_deref();
            Ok(Mail {
                subject: file(subject, AutoEscape::None)?,
                html: html.map(|html| file(html, AutoEscape::Html)).transpose()?,
            })
        };
        let templates = Self {
            from: setting("from", &settings.from)?,
            text: file(&settings.text, AutoEscape::None)?,
            mail: settings.subject.as_deref().map(mail).transpose()?,
            unsubscribe_url: settings
                .unsubscribe_url
                .as_deref()
                .map(|url| setting("unsubscribe_url", url))
                .transpose()?,
            when_empty: settings.when_empty,
            secret,
        };
        templates.check_secret()?;
        templates.check_constants()?;
        Ok(templates)
    }

    /// Renders one operation: the same input gives the same bytes, at any time, on any machine.
    ///
    /// # Errors
    /// Class `recipient` when the address is not one usable mailbox, or number of a text message;
    /// class `schema` when a template cannot be rendered with this data, or a result is empty, too
    /// large or not usable where it goes. The code names the template and the line, never data.
    pub fn render(&self, input: &RenderInput<'_>) -> Result<Rendered, Failure> {
        if input.rows.is_empty() && self.when_empty == WhenEmpty::Skip {
            return Ok(Rendered::NothingToSend);
        }
        let address = input.customer.get("address").and_then(|value| value.as_str());
        let address = address.unwrap_or_default();
        let message = match &self.mail {
            Some(mail) => self.render_mail(mail, input, address)?,
            None => self.render_text_message(input, address)?,
        };
        Ok(Rendered::Message(Box::new(message)))
    }

    fn render_mail(
        &self,
        mail: &Mail,
        input: &RenderInput<'_>,
        address: &str,
    ) -> Result<FrozenMessage, Failure> {
        let recipient = Address::parse(address).map_err(|e| unusable_address(&e))?;
        let (variables, unsubscribe_url) = self.variables_with_url(input)?;
        let from = parse_from(&self.from.render(&variables)?)
            .map_err(|reason| schema(format!("from is not a mailbox: {reason}")))?;
        let html = mail.html.as_ref().map(|html| body("html", &html.render(&variables)?));
        let parts = Parts {
            key: input.key,
            recipient: &recipient,
            from: &from,
            subject: subject(&mail.subject.render(&variables)?)?,
            text: body("text", &self.text.render(&variables)?)?,
            html: html.transpose()?,
            unsubscribe_url: unsubscribe_url.as_ref(),
            date: input.selected_at,
        };
        let message = mime::build(parts);
        if message.mime.reveal().len() > MESSAGE_BYTES_MAX {
            return Err(schema(format!("message has more than {MESSAGE_BYTES_MAX} bytes")));
        }
        Ok(message)
    }

    fn render_text_message(
        &self,
        input: &RenderInput<'_>,
        number: &str,
    ) -> Result<FrozenMessage, Failure> {
        check_number(number).map_err(|e| unusable_address(&e))?;
        let (variables, _) = self.variables_with_url(input)?;
        let from = self.from.render(&variables)?;
        let from = from.trim();
        if Sender::parse(from).is_none() {
            return Err(schema("from is no sender of text messages"));
        }
        let text = body("text", &self.text.render(&variables)?)?;
        // Every character is paid for, and no alphabet of text messages has a tab.
        let text = text.trim().replace('\t', " ");
        if text.encode_utf16().count() > TEXT_UNITS_MAX {
            return Err(schema(format!("text has more than {TEXT_UNITS_MAX} characters")));
        }
        Ok(sms::build(number, from, text))
    }

    /// All variables, and the URL that `unsubscribe_url` among them is.
    fn variables_with_url(
        &self,
        input: &RenderInput<'_>,
    ) -> Result<(BTreeMap<String, Value>, Option<Url>), Failure> {
        let mut variables = self.variables(input);
        let unsubscribe_url = self
            .unsubscribe_url
            .as_ref()
            .map(|template| parse_url(&template.render(&variables)?).map_err(unusable_url))
            .transpose()?;
        // Without the setting it is null: it can be tested, and printing it fails.
        let url =
            unsubscribe_url.as_ref().map_or_else(|| Value::from(()), |url| url.as_str().into());
        variables.insert("unsubscribe_url".to_owned(), url);
        Ok((variables, unsubscribe_url))
    }

    /// All variables but `unsubscribe_url`, whose own template may use the others.
    fn variables(&self, input: &RenderInput<'_>) -> BTreeMap<String, Value> {
        let columns = input.customer.iter();
        let mut variables: BTreeMap<String, Value> =
            columns.map(|(name, value)| (name.clone(), Value::from(Serde(value)))).collect();
        let key = input.key;
        let mut set = |name: &str, value: Value| variables.insert(name.to_owned(), value);
        set("rows", Value::from(Serde(input.rows)));
        set("period", key.period().to_string().into());
        set("campaign", key.campaign().into());
        set("operation_key", key.to_string().into());
        let token = self.secret.as_ref().map(|s| s.token(key.campaign(), &key.customer_id()));
        set("unsubscribe_token", token.map_or_else(|| Value::from(()), Value::from));
        variables.remove("unsubscribe_url");
        variables
    }

    fn check_secret(&self) -> Result<(), TemplateError> {
        if self.secret.is_some() {
            return Ok(());
        }
        let mail =
            self.mail.iter().flat_map(|mail| std::iter::once(&mail.subject).chain(&mail.html));
        let fixed = [&self.from, &self.text].into_iter();
        let mut templates = fixed.chain(mail).chain(&self.unsubscribe_url);
        match templates.find_map(|template| template.name_of_user_of("unsubscribe_token")) {
            Some(name) => Err(TemplateError::MissingSecret { name }),
            None => Ok(()),
        }
    }

    /// What does not depend on any data is rendered now, to find a mistake before a run does.
    fn check_constants(&self) -> Result<(), TemplateError> {
        match self.from.constant() {
            Some(from) if self.mail.is_some() => {
                parse_from(&from).map_err(|reason| TemplateError::From { reason })?;
            }
            Some(from) => {
                Sender::parse(from.trim()).ok_or(TemplateError::TextSender)?;
            }
            None => {}
        }
        if let Some(url) = self.unsubscribe_url.as_ref().and_then(Template::constant) {
            let problem =
                |reason: &str| TemplateError::UnsubscribeUrl { reason: reason.to_owned() };
            parse_url(&url).map_err(problem)?;
        }
        Ok(())
    }
}

/// One template with its includes.
#[derive(Debug)]
struct Template {
    environment: Environment<'static>,
    name: String,
}

impl Template {
    fn new(
        escape: AutoEscape,
        add: impl FnOnce(&mut Environment<'static>) -> Result<String, TemplateError>,
    ) -> Result<Self, TemplateError> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(FUEL_MAX));
        // A debug snapshot would hold the customer's data.
        environment.set_debug(false);
        environment.set_auto_escape_callback(move |_| escape.clone());
        environment.set_formatter(|out, state, value| {
            if value.is_none() {
                return Err(Error::new(ErrorKind::InvalidOperation, NULL));
            }
            minijinja::escape_formatter(out, state, value)
        });
        let name = add(&mut environment)?;
        Ok(Self { environment, name })
    }

    fn render(&self, variables: &BTreeMap<String, Value>) -> Result<String, Failure> {
        let variables = variables.iter().map(|(name, value)| (name.as_str(), value.clone()));
        self.environment
            .get_template(&self.name)
            .and_then(|template| template.render(Value::from_pairs(variables)))
            .map_err(|error| schema(self.explain(&error)))
    }

    /// The result, if the template uses no variable at all.
    fn constant(&self) -> Option<String> {
        let template = self.environment.get_template(&self.name).ok()?;
        if template.undeclared_variables(false).is_empty() {
            template.render(()).ok()
        } else {
            None
        }
    }

    /// The template, this one or an included one, that uses `variable`.
    fn name_of_user_of(&self, variable: &str) -> Option<String> {
        let mut templates = self.environment.templates();
        templates
            .find(|(_, template)| template.undeclared_variables(false).contains(variable))
            .map(|(name, _)| name.to_owned())
    }

    /// What went wrong, where, in the template's own words and none of the data's: only the error's
    /// kind is used, and the template's text at that place.
    fn explain(&self, error: &Error) -> String {
        // An error inside of an include is wrapped by the place of the include.
        let mut error = error;
        while let Some(inner) = std::error::Error::source(error).and_then(|e| e.downcast_ref()) {
            error = inner;
        }
        let name = error.name().unwrap_or(&self.name);
        let line = error.line().unwrap_or(1);
        let what = match error.kind() {
            ErrorKind::UndefinedError => "undefined".to_owned(),
            ErrorKind::OutOfFuel => "too much work for one message".to_owned(),
            ErrorKind::InvalidOperation if error.detail() == Some(NULL) => NULL.to_owned(),
            kind => kind.to_string(),
        };
        let expression = self.expression(name, error).unwrap_or_default();
        format!("template {name} line {line}: {what}{expression}")
    }

    /// The template's own text at the place of the error, if it is a plain name or path.
    fn expression(&self, name: &str, error: &Error) -> Option<String> {
        let template = self.environment.get_template(name).ok()?;
        let text = template.source().get(error.range()?)?.trim();
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"_.[]|".contains(&b);
        let short = (1..=EXPRESSION_BYTES_MAX).contains(&text.len());
        (short && text.bytes().all(plain)).then(|| format!(" ({text})"))
    }
}

/// The code of a NULL that was to be printed.
const NULL: &str = "null value";

fn schema(code: impl Into<String>) -> Failure {
    Failure::new(FailureClass::Schema, code)
}

fn unusable_address(error: &dyn std::error::Error) -> Failure {
    Failure::new(FailureClass::Recipient, format!("address {error}"))
}

fn subject(rendered: &str) -> Result<String, Failure> {
    let subject = one_line(rendered);
    if subject.is_empty() {
        return Err(schema("subject is empty"));
    }
    if subject.chars().count() > HEADER_CHARS_MAX {
        return Err(schema(format!("subject has more than {HEADER_CHARS_MAX} characters")));
    }
    Ok(subject)
}

/// A body with LF line ends, no control characters but tabs, and exactly one line end at its end.
fn body(part: &str, rendered: &str) -> Result<String, Failure> {
    if rendered.len() > MESSAGE_BYTES_MAX {
        return Err(schema(format!("{part} has more than {MESSAGE_BYTES_MAX} bytes")));
    }
    let lines = rendered.replace("\r\n", "\n").replace('\r', "\n");
    let mut body: String =
        lines.chars().filter(|c| matches!(c, '\n' | '\t') || !c.is_control()).collect();
    body.truncate(body.trim_end().len());
    if body.is_empty() {
        return Err(schema(format!("{part} is empty")));
    }
    body.push('\n');
    Ok(body)
}

fn parse_from(rendered: &str) -> Result<Mailbox, String> {
    if rendered.chars().count() > HEADER_CHARS_MAX {
        return Err(format!("more than {HEADER_CHARS_MAX} characters"));
    }
    Mailbox::parse(rendered).map_err(|error| error.to_string())
}

/// A URL that can stand in `List-Unsubscribe` (RFC 2369, 2) on one line.
fn parse_url(rendered: &str) -> Result<Url, &'static str> {
    let rendered = rendered.trim();
    if rendered.contains(|c: char| c.is_control() || c.is_whitespace() || matches!(c, '<' | '>')) {
        return Err("spaces, control characters or angle brackets");
    }
    let url = Url::parse(rendered).map_err(|_| "not a url")?;
    if !matches!(url.scheme(), "https" | "http" | "mailto") {
        return Err("neither https, http nor mailto");
    }
    // Parsing percent-encodes whatever is not ASCII; an opaque mailto is checked all the same.
    if !url.as_str().bytes().all(|b| b.is_ascii_graphic() && b != b'<' && b != b'>') {
        return Err("characters that a header cannot carry");
    }
    if url.as_str().len() > URL_BYTES_MAX {
        return Err("too long for one header line");
    }
    Ok(url)
}

fn unusable_url(reason: &'static str) -> Failure {
    schema(format!("unsubscribe_url is not usable: {reason}"))
}
