//! The shop of the demo: an SQLite database with customers and what is new for them.

use super::cast::Cast;
use anyhow::Context as _;
use jiff::Timestamp;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode};
use sqlx::{ConnectOptions as _, Connection as _};
use std::path::Path;

const TABLES: &str = "
create table customers (
    id text primary key,
    email text not null,
    first_name text not null,
    digest_opt_in integer not null default 1
);
create table digest_items (
    customer_id text not null references customers (id),
    title text not null,
    price text not null,
    created_at text not null
);
create index digest_items_of_customer on digest_items (customer_id, created_at);
";

const CUSTOMERS: &str = "
with recursive
    names (n, name) as (values
        (0, 'Ada'), (1, 'Bela'), (2, 'Chidi'), (3, 'Dunja'), (4, 'Emre'), (5, 'Fatou'),
        (6, 'Goran'), (7, 'Hanna'), (8, 'Ines'), (9, 'Jonas'), (10, 'Kofi'), (11, 'Lena'),
        (12, 'Mira')),
    numbers (n) as (select 1 union all select n + 1 from numbers where n < $1)
insert into customers (id, email, first_name)
select printf('customer-%04d', numbers.n), printf('customer-%04d@shop.example', numbers.n), name
from numbers join names on names.n = numbers.n % 13
";

/// Four items each: one since the tick, two of the week before it, one of the week before that. The
/// digest has the two in the middle, and its cleanup removes just these.
const ITEMS: &str = "
with offers (n, title, price, age) as (values
    (0, 'Espresso cups, set of four', '24.90', '+1 minutes'),
    (1, 'Wool blanket', '79.00', '+2 minutes'),
    (2, 'Desk lamp, brass', '54.50', '+3 minutes'),
    (3, 'Bread knife', '39.95', '-1 days'),
    (4, 'Linen apron', '32.00', '-1 days'),
    (5, 'Cast-iron pan', '64.00', '-2 days'),
    (6, 'Olive oil, half a litre', '13.80', '-4 days'),
    (7, 'Tea towel, three of them', '18.00', '-5 days'),
    (8, 'Salad bowl, ash', '47.20', '-6 days'),
    (9, 'Cork mat', '9.90', '-9 days'),
    (10, 'Enamel mug', '12.50', '-10 days'),
    (11, 'Garden twine', '6.40', '-12 days'))
insert into digest_items (customer_id, title, price, created_at)
select id, title, price, datetime($1, age)
from customers join offers on (customers.rowid + offers.n) % 3 = 0
";

/// Creates the shop in `file`, with rows of the weeks around `tick`.
///
/// # Errors
/// What SQLite says.
pub(super) async fn create(file: &Path, cast: Cast, tick: Timestamp) -> anyhow::Result<()> {
    let filling = async {
        let mut shop = open(file, true).await?;
        sqlx::raw_sql(TABLES).execute(&mut shop).await?;
        let mut transaction = shop.begin().await?;
        sqlx::query(CUSTOMERS).bind(cast.customers).execute(&mut *transaction).await?;
        let tick = tick.strftime("%Y-%m-%d %H:%M:%S").to_string();
        sqlx::query(ITEMS).bind(tick).execute(&mut *transaction).await?;
        transaction.commit().await?;
        shop.close().await
    };
    filling.await.with_context(|| format!("the demo's shop {} cannot be created", file.display()))
}

/// Customer `id` unsubscribes.
///
/// # Errors
/// What SQLite says.
pub(super) async fn opt_out(file: &Path, id: &str) -> anyhow::Result<()> {
    let update = async {
        let mut shop = open(file, false).await?;
        let sql = "update customers set digest_opt_in = 0 where id = $1";
        sqlx::query(sql).bind(id).execute(&mut shop).await?;
        shop.close().await
    };
    update.await.with_context(|| format!("the demo's shop {} cannot be changed", file.display()))
}

async fn open(file: &Path, create: bool) -> sqlx::Result<SqliteConnection> {
    SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(create)
        .journal_mode(SqliteJournalMode::Wal)
        .connect()
        .await
}
