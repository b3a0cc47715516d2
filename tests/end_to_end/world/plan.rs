//! Describing a world: its shop, its configuration, its provider.

use super::{Database, World, engine, shared_server, shop};
use digest_tests::api_server::twilio;
use digest_tests::mariadb::Mariadb;
use digest_tests::postgres::Postgres;
use std::net::SocketAddr;

/// A world that is being described.
pub(crate) struct Plan {
    campaign: String,
    settings: toml::Table,
    pub(super) customers: Vec<Customer>,
    pub(super) weeks: Vec<shop::Week>,
    pub(super) bigint: bool,
    postgres: bool,
    mariadb: bool,
    /// The database of a server of the test's own.
    database: Option<String>,
    /// The crash point that a first `setup` dies at.
    broken_setup: Option<String>,
    /// What every process of it finds in its environment.
    variables: Vec<(&'static str, &'static str)>,
}

/// One customer of the shop.
#[derive(Clone, Debug)]
pub(crate) struct Customer {
    /// As the shop has it.
    pub(crate) id: String,
    /// The address.
    pub(crate) email: String,
    /// The name.
    pub(crate) name: String,
    /// How many rows its digest has.
    pub(crate) rows: u32,
}

/// A phone number of the shop's customer with this number.
pub(crate) fn text_number(customer: usize) -> String {
    format!("+49151{customer:08}")
}

impl Customer {
    /// An ordinary customer.
    pub(crate) fn new(id: impl Into<String>, number: usize) -> Self {
        let email = format!("customer{number}@shop.example");
        Self { id: id.into(), email, name: format!("Name{number}"), rows: 2 }
    }
}

/// A world whose campaign is `name`, with a sandbox that promises nothing and short times.
pub(crate) fn world(name: &str) -> Plan {
    let mut plan = Plan {
        campaign: name.to_owned(),
        settings: toml::Table::new(),
        customers: Vec::new(),
        weeks: shop::weeks(1),
        bigint: false,
        postgres: false,
        mariadb: false,
        database: None,
        broken_setup: None,
        variables: Vec::new(),
    };
    for (key, value) in [
        ("ledger.url", "sqlite://digestd.db"),
        ("source.url", "sqlite://shop.db"),
        (
            "source.customers",
            "select id as customer_id, email as address, first_name from customers \
             where digest_opt_in = 1",
        ),
        (
            "source.rows",
            "select customer_id, title, price from digest_items \
             where created_at >= :period_start and created_at < :period_end",
        ),
        (
            "source.still_wanted",
            "select 1 from customers where id = :customer_id and digest_opt_in = 1",
        ),
        (
            "source.cleanup",
            "delete from digest_items where customer_id = :customer_id \
             and created_at >= :period_start and created_at < :period_end",
        ),
        ("campaign.name", name),
        ("campaign.timezone", "Europe/Berlin"),
        ("campaign.cron", "0 0 * * MON"),
        ("message.from", "Shop <digest@shop.example>"),
        ("message.subject", "subject.txt"),
        ("message.text", "digest.txt"),
        ("message.unsubscribe_url", "https://shop.example/u/{{ unsubscribe_token }}"),
        ("provider.kind", "sandbox"),
        ("provider.timeout", "1s"),
        ("provider.lease", "4s"),
        ("provider.settle", "1s"),
        ("unknown.lookup_every", "1s"),
        ("unknown.escalate_after", "10s"),
        ("worker.shutdown_grace", "4s"),
        ("http.listen", "127.0.0.1:0"),
        ("sandbox.contract", "none"),
        ("sandbox.log", "sandbox.log"),
        ("engine.task_queue", name),
        ("engine.namespace", "default"),
    ] {
        plan = plan.with(key, value);
    }
    for class in ["transport", "overloaded", "rate_limited", "ambiguous", "cleanup"] {
        plan = plan
            .with(&format!("retry.{class}.base"), "200ms")
            .with(&format!("retry.{class}.cap"), "1s");
    }
    plan.with("provider.rate_per_second", 500.0)
}

/// Sets `table.key`.
pub(super) fn set(settings: &mut toml::Table, key: &str, value: toml::Value) {
    let mut parts: Vec<&str> = key.split('.').collect();
    let last = parts.pop().unwrap();
    let mut table = settings;
    for part in parts {
        let entry = table.entry(part).or_insert_with(|| toml::Table::new().into());
        table = entry.as_table_mut().unwrap();
    }
    table.insert(last.to_owned(), value);
}

impl Plan {
    /// Sets `table.key` of the configuration.
    pub(crate) fn with(mut self, key: &str, value: impl Into<toml::Value>) -> Self {
        set(&mut self.settings, key, value.into());
        self
    }

    /// Every process of it has these variables.
    pub(crate) fn variables(mut self, variables: &[(&'static str, &'static str)]) -> Self {
        self.variables = variables.to_vec();
        self
    }

    /// Takes `table.key` out of the configuration.
    pub(crate) fn without(mut self, key: &str) -> Self {
        let (table, key) = key.split_once('.').unwrap();
        self.settings[table].as_table_mut().unwrap().remove(key).unwrap();
        self
    }

    /// Text messages instead of mails, each to a number of the customer's own, with a listener for
    /// webhooks at `port`.
    pub(crate) fn text_messages(mut self, port: u16) -> Self {
        for (customer, number) in self.customers.iter_mut().zip(1..) {
            customer.email = text_number(number);
        }
        self.without("message.subject")
            .with("campaign.channel", "sms")
            .with("message.from", twilio::NUMBER)
            .with("webhooks.listen", format!("127.0.0.1:{port}"))
            .with("webhooks.public_url", twilio::PUBLIC_URL)
    }

    /// Mail goes to the server at `port` on loopback.
    pub(crate) fn smtp(self, port: u16) -> Self {
        self.with("provider.kind", "smtp").with("provider.url", format!("smtp://127.0.0.1:{port}"))
    }

    /// `count` ordinary customers, `customer-0001` and so on.
    pub(crate) fn customers(mut self, count: usize) -> Self {
        self.customers = (1..=count)
            .map(|number| {
                let id =
                    if self.bigint { number.to_string() } else { format!("customer-{number:04}") };
                Customer::new(id, number)
            })
            .collect();
        self
    }

    /// There is something to send in so many weeks from [`PERIOD`](super::PERIOD) on.
    pub(crate) fn weeks(mut self, count: u32) -> Self {
        self.weeks = shop::weeks(count);
        self
    }

    /// Exactly these customers.
    pub(crate) fn these(mut self, customers: Vec<Customer>) -> Self {
        self.customers = customers;
        self
    }

    /// The ids of its customers.
    pub(crate) fn customer_ids(&self) -> Vec<String> {
        self.customers.iter().map(|customer| customer.id.clone()).collect()
    }

    /// Customer ids are integers. Call it before [`customers`](Self::customers).
    pub(crate) fn bigint(mut self) -> Self {
        self.bigint = true;
        self
    }

    /// Shop and ledger in PostgreSQL.
    pub(crate) fn postgres(mut self) -> Self {
        self.postgres = true;
        self
    }

    /// The shop in MariaDB, the ledger in SQLite.
    pub(crate) fn mariadb(mut self) -> Self {
        self.mariadb = true;
        self
    }

    /// Shop and ledger in this database of PostgreSQL.
    pub(crate) fn postgres_at(mut self, url: String) -> Self {
        self.database = Some(url);
        self.postgres()
    }

    /// A first `digestd setup` dies at this crash point, before the one that succeeds.
    pub(crate) fn setup_dies_at(mut self, point: &str) -> Self {
        self.broken_setup = Some(point.to_owned());
        self
    }

    /// Makes it, on the shared Temporal server. `None`, after a line that says so, where a part is
    /// absent.
    pub(crate) async fn start(self) -> Option<World> {
        let server = shared_server().await?;
        self.start_on(server.address()).await
    }

    /// Makes it, on a Temporal server of the test's own.
    pub(crate) async fn start_on(mut self, server: SocketAddr) -> Option<World> {
        let folder = tempfile::tempdir().unwrap();
        let (shop, ledger) = if self.postgres {
            let url = if let Some(url) = self.database.take() {
                url
            } else {
                let postgres = Postgres::shared("end to end on PostgreSQL").await.unwrap()?;
                postgres.database(&self.campaign.replace('-', "_")).await.unwrap()
            };
            self = self.with("source.url", url.clone());
            if self.settings["ledger"]["url"].as_str() == Some("sqlite://digestd.db") {
                self = self.with("ledger.url", url.clone());
            }
            (Database::Postgres(url.clone()), Database::Postgres(url))
        } else {
            let path = |name: &str| Database::Sqlite(folder.path().join(name));
            let shop = if self.mariadb {
                let mariadb = Mariadb::shared("end to end on MariaDB").await.unwrap()?;
                let url = mariadb.database(&self.campaign.replace('-', "_")).await.unwrap();
                self = self.with("source.url", url.clone());
                Database::Mariadb(url)
            } else {
                path("shop.db")
            };
            (shop, path("digestd.db"))
        };
        self = self.with("engine.address", server.to_string());
        shop::create(&shop, &self).await;
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("subject.txt", "{{ first_name }}, your week");
        write(
            "digest.txt",
            "Hello {{ first_name }},\n{% for row in rows %}* {{ row.title }}: {{ row.price }}\n\
             {% endfor %}\n{{ unsubscribe_url }}\n",
        );
        write("digestd.toml", &toml::to_string(&self.settings).unwrap());
        let client = engine::client(server).await;
        let world = World {
            folder,
            campaign: self.campaign,
            client,
            shop,
            ledger,
            customers: self.customers,
            weeks: self.weeks,
            variables: self.variables,
            taken: None,
            workers: std::sync::atomic::AtomicU32::new(0),
        };
        if let Some(point) = &self.broken_setup {
            world.digestd_that_dies_at(point, &["setup"]).await;
        }
        let setup = world.digestd("setup").await;
        assert_eq!(setup.code, 0, "{setup:?}");
        Some(world)
    }
}
