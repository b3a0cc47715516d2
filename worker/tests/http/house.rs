//! A worker's HTTP with a ledger behind it, in which one run has something of everything.

use digest_activities::ledger::{
    Actor, BeginAnswer, FreezePage, FrozenData, Ledger, NewCanary, NewRun, Selected, Slot, Token,
};
use digest_activities::message::Redacted;
use digest_workflows::operation::{
    Contract, Event, Failure, FailureClass, Intent, OperationKey, Outcome, Period, ProviderRef,
    Rehearsal, Rules, State,
};
use digestd::config::{Config, Secrets};
use digestd::http::{Desk, Watch, people};
use jiff::{SignedDuration, Timestamp};
use reqwest::header::{AUTHORIZATION, COOKIE, LOCATION, SET_COOKIE};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, redirect};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;

pub(crate) const CAMPAIGN: &str = "digest";
pub(crate) const TOKEN: &str = "a token of many characters";
/// In every frozen row, and never in an answer.
pub(crate) const ADDRESS: &str = "anna@shop.example";
pub(crate) const CONTENT: &str = "a lamp for her";
const TEST: Actor<'static> = Actor::part("test");

/// The worker's HTTP. Customer 1 is unknown, 2 dead, 3 delivered and cleaned, 4 still selected.
pub(crate) struct House {
    pub(crate) ledger: Ledger,
    pub(crate) period: Period,
    address: SocketAddr,
    client: Client,
    _folder: Option<tempfile::TempDir>,
}

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) enum Who {
    Nobody,
    Token(&'static str),
    Session(String),
}

impl House {
    pub(crate) async fn with_token() -> Self {
        Self::build(Some(TOKEN)).await
    }

    pub(crate) async fn build(token: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("digestd.db").display());
        Self { _folder: Some(folder), ..Self::at(&url, token).await }
    }

    /// With ledger and source in an empty database.
    pub(crate) async fn at(url: &str, token: Option<&str>) -> Self {
        digestd::engine::install_tls_provider();
        let text = format!(
            "[source]\ncustomers = \"select id as customer_id, email as address from c\"\n\
             rows = \"select id as customer_id, '{CONTENT}' as title from c\"\n\
             still_wanted = \"select 1 from c where id = :customer_id\"\n[campaign]\ntimezone = \"UTC\"\n[message]\n\
             from = \"Shop <a@shop.example>\"\n[provider]\nkind = \"sandbox\"\n\
             [replay]\nmax_keys = 3\n[ledger]\nurl = \"{url}\"\n"
        );
        let config = Config::parse(&text, Path::new("digestd.toml")).unwrap();
        let (ledger, _) = Ledger::set_up(url, "digestd").await.unwrap();
        let customers = format!(
            "create table c (id text primary key, email text); \
             insert into c values ('new', '{ADDRESS}'), ('newer', '{ADDRESS}')"
        );
        let customers = sqlx::raw_sql(AssertSqlSafe(customers));
        if url.starts_with("postgres") {
            let mut source = PgConnection::connect(url).await.unwrap();
            customers.execute(&mut source).await.unwrap();
            source.close().await.unwrap();
        } else {
            let mut source = SqliteConnection::connect(url).await.unwrap();
            customers.execute(&mut source).await.unwrap();
            source.close().await.unwrap();
        }
        let mut secrets = Secrets::default();
        secrets.http_token = token.map(|token| Redacted::new(token.to_owned()));
        let desk = Arc::new(Desk::new(config, &secrets, ledger.clone(), None).unwrap());
        let watch = Watch::new(ledger.clone(), CAMPAIGN.to_owned());
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let watching = Arc::clone(&watch);
        tokio::spawn(async move {
            watching.run(stopped).await;
            drop(stop);
        });
        let app = people(desk, watch).into_make_service_with_connect_info::<SocketAddr>();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        let client = Client::builder().redirect(redirect::Policy::none()).build().unwrap();
        let period = Period::parse("2026-W42").unwrap();
        let house = Self { ledger, period, address, client, _folder: None };
        house.furnish().await;
        house
    }

    /// A run with something of everything.
    async fn furnish(&self) {
        let start = Timestamp::from_second(1_790_000_000).unwrap();
        let new = NewRun {
            campaign: CAMPAIGN,
            period: self.period,
            tick: None,
            window: (start, None),
            useful_for: SignedDuration::from_hours(120),
        };
        self.ledger.open_run(&new).await.unwrap();
        let columns = json!({"customer_id": 1, "address": ADDRESS});
        let data = FrozenData {
            customer: columns.as_object().cloned().unwrap(),
            rows: vec![json!({"title": CONTENT})],
        };
        let selected = (1..=4).map(|n| Selected { key: self.key(n), data: data.clone() }).collect();
        let page = FreezePage { selected, ..FreezePage::default() };
        self.ledger.freeze(CAMPAIGN, self.period, None, &page).await.unwrap();
        self.ledger.enqueue(CAMPAIGN, self.period, 0, 100, usize::MAX).await.unwrap();
        let [doubted, dead, sent] = [1, 2, 3].map(|customer| self.key(customer));
        let doubtful = self.begin(&doubted).await;
        self.record(&doubted, Event::Overdue { attempt: doubtful, random: 0.0 }).await;
        let refused = self.begin(&dead).await;
        let failure = Failure::new(FailureClass::Rejected, "smtp 550");
        let outcome = Outcome::NotSent(failure);
        self.record(&dead, Event::Answered { attempt: refused, outcome, random: 0.0 }).await;
        let taken = self.begin(&sent).await;
        let outcome = Outcome::Accepted { message_id: Some("provider-1".into()) };
        self.record(&sent, Event::Answered { attempt: taken, outcome, random: 0.0 }).await;
        self.record(&sent, Event::CleanedUp).await;
        for (customer, state) in
            [(1, State::Unknown), (2, State::Dead), (3, State::Cleaned), (4, State::Selected)]
        {
            assert_eq!(self.state(customer).await, state, "customer {customer}");
        }
    }

    pub(crate) fn key(&self, customer: u32) -> OperationKey {
        OperationKey::new(CAMPAIGN, self.period, &format!("c {customer}")).unwrap()
    }

    pub(crate) async fn state(&self, customer: u32) -> State {
        self.ledger.operation(&self.key(customer)).await.unwrap().operation.state
    }

    /// A canary with the data of customer 1, whose answer was lost.
    pub(crate) async fn canary_in_doubt(&self) -> OperationKey {
        let at = Timestamp::from_second(1_790_000_000).unwrap();
        let customer = self.key(1).customer_id();
        let key = OperationKey::canary(CAMPAIGN, self.period, &customer, at, Rehearsal::None);
        let key = key.unwrap();
        let columns = json!({"customer_id": customer, "address": ADDRESS});
        let data = FrozenData {
            customer: columns.as_object().cloned().unwrap(),
            rows: vec![json!({"title": CONTENT})],
        };
        let useful_for = SignedDuration::from_hours(1);
        let new = NewCanary { key: &key, data: &data, window: (at, at + useful_for), useful_for };
        self.ledger.add_canary(&new).await.unwrap();
        let attempt = self.begin(&key).await;
        self.record(&key, Event::Overdue { attempt, random: 0.0 }).await;
        key
    }

    async fn begin(&self, key: &OperationKey) -> u32 {
        let operation = self.ledger.operation(key).await.unwrap().operation;
        let intent = Intent {
            generation: operation.generation,
            ordinal: operation.ordinal + 1,
            provider: ProviderRef { kind: "sandbox".into(), account: "test".into() },
            contract: Contract::NONE,
            content_hash: "hash".into(),
            lease: SignedDuration::from_mins(15),
            settle: SignedDuration::from_mins(2),
            batch: None,
        };
        let (token, rules) = (Token::draw(), Rules::default());
        let begun = self.ledger.begin(key, &intent, &token, &Slot::UNPACED, &rules).await;
        match begun.unwrap() {
            BeginAnswer::Begun(begun) => begun.number,
            BeginAnswer::Cannot(cannot) => panic!("{key}: {cannot}"),
        }
    }

    async fn record(&self, key: &OperationKey, event: Event) {
        let rules = Rules::default();
        self.ledger.record(key, &event, &rules, TEST, None).await.unwrap();
    }

    /// A path of a route, with its parameters filled in.
    pub(crate) fn fill(&self, route: &str) -> String {
        route
            .replace("{period}", &self.period.to_string())
            .replace("{key}", &self.key(1).to_string().replace('%', "%25"))
            .replace("{decision}", "hold")
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn request(&self, method: Method, path: &str, who: &Who) -> RequestBuilder {
        let request = self.client.request(method, self.url(path));
        match who {
            Who::Nobody => request,
            Who::Token(token) => request.header(AUTHORIZATION, format!("Bearer {token}")),
            Who::Session(cookie) => request.header(COOKIE, cookie),
        }
    }

    pub(crate) async fn get(&self, path: &str, who: &Who) -> Response {
        self.request(Method::GET, path, who).send().await.unwrap()
    }

    /// A page that is there, in full.
    pub(crate) async fn page(&self, path: &str, who: &Who) -> String {
        let answer = self.get(path, who).await;
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        answer.text().await.unwrap()
    }

    /// The answer of the API with the token: its status, and its JSON.
    pub(crate) async fn api(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        let request = self.request(method, &format!("/api/v1{path}"), &Who::Token(TOKEN));
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        let answer = request.send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(!text.contains(ADDRESS) && !text.contains(CONTENT), "{path}: {text}");
        (status, serde_json::from_str(&text).unwrap_or_else(|_| panic!("{path}: {text}")))
    }

    pub(crate) async fn sign_in(&self, name: &str) -> Who {
        let form = format!("next=/unknown&token={}&name={name}", TOKEN.replace(' ', "+"));
        let answer = self.post("/sign-in", &Who::Nobody, &form).await;
        assert_eq!(answer.status(), StatusCode::SEE_OTHER);
        assert_eq!(answer.headers()[LOCATION], "/unknown");
        let cookie = answer.headers()[SET_COOKIE].to_str().unwrap();
        Who::Session(cookie.split(';').next().unwrap().to_owned())
    }

    pub(crate) async fn post(&self, path: &str, who: &Who, form: &str) -> Response {
        let request = self.request(Method::POST, path, who);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        request.body(form.to_owned()).send().await.unwrap()
    }
}

/// The value of a hidden field of a page.
pub(crate) fn hidden(page: &str, name: &str) -> String {
    let start = format!("name=\"{name}\" value=\"");
    let (_, rest) = page.split_once(&start).unwrap_or_else(|| panic!("no {name} in {page}"));
    rest.split('"').next().unwrap().to_owned()
}
