//! What `digestd check` asks SendGrid: whether the key may send, and whether the sender is verified.

use super::super::api::{KEY_VARIABLE, read, told};
use super::{Fault, Refusal, Sendgrid};
use serde::Deserialize;

impl Sendgrid {
    pub(super) async fn check_key(&self) -> Result<(), String> {
        let asked = format!("SendGrid ({}) was asked what the API key may do", self.api.base());
        let answer = self.api.get("/v3/scopes").await.map_err(|code| format!("{asked}: {code}"))?;
        let Refusal { errors } = read(&answer).unwrap_or_default();
        let spent = |fault: &Fault| {
            fault.message.as_ref().is_some_and(|text| text.contains("Maximum credits exceeded"))
        };
        match (answer.status.as_u16(), read::<Scopes>(&answer)) {
            (200, Some(Scopes { scopes })) if scopes.iter().any(|scope| scope == "mail.send") => {
                Ok(())
            }
            (200, Some(_)) => Err(
                "SendGrid knows the API key, which may not send; give it the permission Mail Send"
                    .to_owned(),
            ),
            (200, None) => Err(format!(
                "what answers at {} is not SendGrid's API; correct provider.url",
                self.api.base()
            )),
            (401, _) if errors.iter().any(spent) => Err(format!(
                "{asked} and says that the account's credits are used up; buy more, or wait until they begin anew"
            )),
            (401 | 403, _) => {
                Err(format!("{asked} and does not take it; put a valid one into {KEY_VARIABLE}"))
            }
            _ => Err(format!(
                "{asked} and answered {}; look at provider.url",
                told(answer.status, "")
            )),
        }
    }

    /// Whether mail from `sender` may be sent: its domain is authenticated, or one of its addresses.
    pub(super) async fn check_domain(&self, sender: &str) -> Result<String, String> {
        let asked = "SendGrid was asked for the account's verified senders";
        let ask = async |path: &str| {
            let answer = self.api.get(path).await.map_err(|code| format!("{asked}: {code}"))?;
            match answer.status.as_u16() {
                200 => Ok(Some(answer)),
                401 | 403 => Ok(None),
                _ => Err(format!("{asked} and answered {}", told(answer.status, ""))),
            }
        };
        let domains = ask("/v3/whitelabel/domains?limit=500").await?;
        let senders = ask("/v3/verified_senders?limit=500").await?;
        let domain = domains.as_ref().and_then(read::<Vec<Domain>>).into_iter().flatten();
        let covers = |domain: &Domain| {
            let sender = sender.to_ascii_lowercase();
            let domain = domain.domain.to_ascii_lowercase();
            sender == domain || sender.ends_with(&format!(".{domain}"))
        };
        let covering: Vec<Domain> = domain.filter(covers).collect();
        if covering.iter().any(|domain| domain.valid) {
            return Ok(format!("SendGrid takes the API key, and {sender} is authenticated"));
        }
        let senders = senders.as_ref().and_then(read::<Senders>);
        let of_domain = |one: &Sender| {
            let domain = one.from_email.rsplit_once('@').map(|(_, domain)| domain);
            one.verified && domain.is_some_and(|domain| domain.eq_ignore_ascii_case(sender))
        };
        match (domains, senders) {
            (_, Some(Senders { results })) if results.iter().any(of_domain) => Ok(format!(
                "SendGrid takes the API key, and a single sender of {sender} is verified"
            )),
            (None, _) | (_, None) => Ok(format!(
                "SendGrid takes the API key, which may not list verified senders: whether {sender} is one could not be asked"
            )),
            (Some(_), Some(_)) if covering.is_empty() => Err(format!(
                "SendGrid does not know the domain {sender} of message.from; authenticate it there, or send from a verified one"
            )),
            (Some(_), Some(_)) => Err(format!(
                "the domain {sender} of message.from is not authenticated at SendGrid; set the DNS records that its page shows"
            )),
        }
    }
}

#[derive(Deserialize)]
struct Scopes {
    scopes: Vec<String>,
}

#[derive(Deserialize)]
struct Domain {
    domain: String,
    valid: bool,
}

#[derive(Deserialize)]
struct Senders {
    results: Vec<Sender>,
}

#[derive(Deserialize)]
struct Sender {
    from_email: String,
    #[serde(default)]
    verified: bool,
}
