//! What a check says of the sender: verified, not yet, or unknown to the account.

use super::bench::{settings, soon};
use digest_activities::provider::api::ApiSettings;
use digest_tests::api_server::{ApiServer, Dialect, Ses};
use std::sync::Arc;

const SES: Ses = Ses { bulk: false };

#[tokio::test]
async fn ses_names_a_domain_that_is_not_verified_or_not_known() {
    let server = ApiServer::start(Arc::new(SES), None, []).await.unwrap();
    let check = async |sender: &str| {
        let sender_domain = Some(sender.to_owned());
        let settings = ApiSettings { sender_domain, ..settings(&server.url()) };
        soon(SES.adapter(&settings).unwrap().check()).await
    };
    for sender in ["shop.example", "News.Shop.Example"] {
        let said = check(sender).await.unwrap();
        assert!(said.contains(&format!("{sender} is verified")), "{said}");
    }
    for (sender, state, cure) in [
        ("new.example", "is not verified", "set the DNS records"),
        ("other.example", "does not know the domain", "create its identity"),
        ("notshop.example", "does not know the domain", "correct provider.region"),
    ] {
        let said = check(sender).await.unwrap_err();
        assert!(said.contains(sender) && said.contains(state) && said.contains(cure), "{said}");
    }
}
