-- A sample shop: 50 customers, of whom 46 want the digest, with items from four weeks ago to next week.

create table customers (
    id text primary key,
    email text not null,
    first_name text,
    digest_opt_in boolean not null default true
);

create table digest_items (
    id bigint generated always as identity primary key,
    customer_id text not null references customers (id),
    title text not null,
    price numeric(10, 2) not null,
    created_at timestamptz not null
);
create index digest_items_by_customer on digest_items (customer_id, created_at);

insert into customers (id, email, first_name, digest_opt_in)
select
    'customer-' || (1000 + n),
    'customer-' || (1000 + n) || '@shop.example',
    (array['Ada', 'Grace', 'Alan', 'Barbara', 'Edsger', 'Katherine', 'Niklaus'])[1 + n % 7],
    n % 12 <> 0
from generate_series(1, 50) as n;

-- One item a customer and day, at noon.
insert into digest_items (customer_id, title, price, created_at)
select
    c.id,
    (array['Linen shirt', 'Desk lamp', 'Coffee mill', 'Notebook', 'Wool blanket'])[1 + (n + day + 7) % 5],
    9.90 + (n * 7 + (day + 7) * 3) % 90,
    date_trunc('day', now()) - make_interval(days => day) + interval '12 hours'
from (select id, row_number() over (order by id)::int as n from customers) as c
cross join generate_series(-7, 28) as day;
