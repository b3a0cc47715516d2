//! What `digestd check` asks Twilio: who the credentials are, and whether the sender is theirs.

use super::{Told, Twilio};
use crate::message::Sender;
use crate::provider::api::{Api, PASSWORD_VARIABLE, USERNAME_VARIABLE, query, read, told};
use crate::provider::exchange::Answer;
use serde::Deserialize;

#[derive(Deserialize)]
struct Account {
    status: String,
    #[serde(default, rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Numbers {
    incoming_phone_numbers: Vec<Number>,
}

#[derive(Deserialize)]
struct Number {
    #[serde(default)]
    capabilities: Capabilities,
}

#[derive(Default, Deserialize)]
struct Capabilities {
    #[serde(default)]
    sms: bool,
}

#[derive(Deserialize)]
struct ShortCodes {
    short_codes: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Service {
    #[serde(rename = "sid")]
    _sid: String,
}

fn code(answer: &Answer) -> Option<u32> {
    read::<Told>(answer).unwrap_or_default().code
}

fn shown(answer: &Answer) -> String {
    told(answer.status, &code(answer).map(|code| code.to_string()).unwrap_or_default())
}

impl Twilio {
    /// Who the credentials are.
    pub(super) async fn check_account(&self) -> Result<String, String> {
        let account = &self.account;
        let asked = format!("Twilio ({}) was asked for the account {account}", self.api.base());
        let path = format!("/2010-04-01/Accounts/{account}.json");
        let answer = self.api.get(&path).await.map_err(|code| format!("{asked}: {code}"))?;
        match (answer.status.as_u16(), code(&answer)) {
            (200, _) => match read::<Account>(&answer) {
                Some(Account { status, kind }) if status == "active" => Ok(if kind == "Trial" {
                    "Twilio takes the credentials; it is a trial account, which sends to verified numbers alone and changes the text".to_owned()
                } else {
                    "Twilio takes the credentials, and the account is active".to_owned()
                }),
                Some(_) => Err(self.not_active()),
                None => Err(not_twilio(&self.api)),
            },
            (_, Some(10_001 | 20_005 | 30_002)) => Err(self.not_active()),
            // Most keys may send and not read the account.
            (401 | 403, _) if self.is_key => self.check_key(&asked).await,
            (401 | 403, _) => Err(wrong_credentials(&asked)),
            (404, Some(_)) => Err(format!(
                "{asked} and has none; correct the SID in {USERNAME_VARIABLE} or provider.account_sid, and for an account of a region set provider.url to that region's API"
            )),
            _ => Err(format!("{asked} and answered {}; look at provider.url", shown(&answer))),
        }
    }

    /// Whether a key that may not read the account may read its messages, as a look-up does.
    async fn check_key(&self, asked: &str) -> Result<String, String> {
        let path = query(&self.path("Messages.json"), &[("PageSize", "1")]);
        let answer = self.api.get(&path).await.map_err(|code| format!("{asked}: {code}"))?;
        match (answer.status.as_u16(), code(&answer)) {
            (200, _) => Ok("Twilio takes the API key, which may not read the account: whether that is active could not be asked".to_owned()),
            (_, Some(10_001 | 20_005 | 30_002)) => Err(self.not_active()),
            (401 | 403, _) => Err(wrong_credentials(asked)),
            _ => Err(format!("{asked} and answered {}; look at provider.url", shown(&answer))),
        }
    }

    /// Whether the sender is the account's.
    pub(super) async fn check_sender(&self) -> Result<String, String> {
        let Some(sender) = &self.sender else {
            return Ok(
                "message.from differs from message to message, so it was not asked for".to_owned()
            );
        };
        match Sender::parse(sender) {
            Some(Sender::Number(number)) => self.check_number(number).await,
            Some(Sender::ShortCode(number)) => self.check_short_code(number).await,
            Some(Sender::Service(sid)) => self.check_service(sid).await,
            Some(Sender::Name(name)) => Ok(format!(
                "whether the name {name} is registered in the countries that ask for it could not be asked"
            )),
            None => Err(format!("message.from ({sender}) is no sender of text messages")),
        }
    }

    async fn check_number(&self, number: &str) -> Result<String, String> {
        let asked = [("PhoneNumber", number), ("PageSize", "1")];
        let path = query(&self.path("IncomingPhoneNumbers.json"), &asked);
        let Some(answer) = self.ask(&self.api, &path, number).await? else {
            return Ok(not_readable(number));
        };
        let Numbers { incoming_phone_numbers } =
            read(&answer).ok_or_else(|| not_twilio(&self.api))?;
        match incoming_phone_numbers.first() {
            Some(number_of_ours) if number_of_ours.capabilities.sms => {
                Ok(format!("{number} is one of its numbers"))
            }
            Some(_) => Err(format!(
                "{number} is one of the account's numbers and cannot send text messages; set message.from to one that can"
            )),
            None => Err(self.not_ours("number", number)),
        }
    }

    async fn check_short_code(&self, number: &str) -> Result<String, String> {
        let asked = [("ShortCode", number), ("PageSize", "1")];
        let path = query(&self.path("SMS/ShortCodes.json"), &asked);
        let Some(answer) = self.ask(&self.api, &path, number).await? else {
            return Ok(not_readable(number));
        };
        let ShortCodes { short_codes } = read(&answer).ok_or_else(|| not_twilio(&self.api))?;
        if short_codes.is_empty() {
            return Err(self.not_ours("short code", number));
        }
        Ok(format!("{number} is one of its short codes"))
    }

    async fn check_service(&self, sid: &str) -> Result<String, String> {
        let path = format!("/v1/Services/{sid}");
        let Some(answer) = self.ask(&self.services, &path, sid).await? else {
            return Ok(not_readable(sid));
        };
        if answer.status.as_u16() == 404 {
            return Err(self.not_ours("messaging service", sid));
        }
        read::<Service>(&answer).ok_or_else(|| not_twilio(&self.services))?;
        Ok(format!("{sid} is one of its messaging services"))
    }

    /// The answer about `sender`, 200 or 404; `None` where the credentials may not ask.
    async fn ask(&self, api: &Api, path: &str, sender: &str) -> Result<Option<Answer>, String> {
        let asked = format!("Twilio ({}) was asked for the sender {sender}", api.base());
        let answer = api.get(path).await.map_err(|code| format!("{asked}: {code}"))?;
        match answer.status.as_u16() {
            200 | 404 => Ok(Some(answer)),
            401 | 403 => Ok(None),
            _ => Err(format!("{asked} and answered {}; try again later", shown(&answer))),
        }
    }

    fn not_active(&self) -> String {
        format!(
            "the account {} is suspended or closed at Twilio; clear it up in its console",
            self.account
        )
    }

    fn not_ours(&self, what: &str, sender: &str) -> String {
        format!(
            "the account {} has no {what} {sender}; correct message.from, or get it in Twilio's console",
            self.account
        )
    }
}

fn wrong_credentials(asked: &str) -> String {
    format!(
        "{asked} and does not know the credentials; put the account's SID and auth token, or an API key's SID and secret, into {USERNAME_VARIABLE} and {PASSWORD_VARIABLE}"
    )
}

fn not_twilio(api: &Api) -> String {
    format!("what answers at {} is not Twilio's API; correct provider.url", api.base())
}

fn not_readable(sender: &str) -> String {
    format!("whether {sender} is the account's could not be asked with these credentials")
}
