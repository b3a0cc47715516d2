//! The console in a real browser.

use crate::house::{CAMPAIGN, House, TOKEN};
use digest_activities::ledger::Actor;
use digest_tests::browser::Browser;
use digest_workflows::operation::State;

/// The lowest contrast of any text with what is behind it (WCAG 2.2, 1.4.3), and what text that is.
const CONTRAST: &str = r"(() => {
    const parse = (colour) => colour.match(/[\d.]+/g).map(Number);
    const channel = (value) => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
    const ground = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const colour = parse(getComputedStyle(at).backgroundColor);
            if (colour.length < 4 || colour[3] > 0) return colour;
        }
        return [255, 255, 255];
    };
    let worst = [21, ''];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const element = texts.currentNode.parentElement;
        if (texts.currentNode.data.trim() === '' || element.getClientRects().length === 0) continue;
        const [one, other] = [light(parse(getComputedStyle(element).color)), light(ground(element))];
        const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        if (contrast < worst[0]) worst = [contrast, texts.currentNode.data.trim()];
    }
    return worst;
})()";

async fn signed_in(house: &House, what: &str) -> Option<Browser> {
    let mut browser = Browser::start(what).await.unwrap()?;
    browser.open(&house.url("/unknown")).await.unwrap();
    browser.until("location.pathname === '/sign-in'").await.unwrap();
    browser.tab_to("#name").await.unwrap();
    browser.write("ann").await.unwrap();
    browser.tab_to("#token").await.unwrap();
    browser.write(TOKEN).await.unwrap();
    browser.press("Enter").await.unwrap();
    // Back where the way led.
    browser
        .until("location.pathname === '/unknown' && document.readyState === 'complete'")
        .await
        .unwrap();
    Some(browser)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_doubt_is_settled_with_the_keyboard_alone() {
    let house = House::with_token().await;
    let Some(mut browser) = signed_in(&house, "the console by keyboard").await else { return };
    browser.tab_to("input[name=key]").await.unwrap();
    browser.press(" ").await.unwrap();
    browser.tab_to("button[value=abandon]").await.unwrap();
    browser.press("Enter").await.unwrap();
    browser.until("document.querySelector('h1').textContent === 'Abandon?'").await.unwrap();
    assert_eq!(house.state(1).await, State::Unknown);
    browser.tab_to("#reason").await.unwrap();
    browser.write("nobody will find out").await.unwrap();
    browser.tab_to("button.strong").await.unwrap();
    browser.press("Enter").await.unwrap();
    browser.until("document.querySelector('h1').textContent === 'Abandon'").await.unwrap();
    assert_eq!(house.state(1).await, State::Expired);
    assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_fits_a_phone_and_is_readable_by_day_and_night() {
    let house = House::with_token().await;
    let Some(mut browser) = signed_in(&house, "the console on a phone").await else { return };
    let (unknown, dead) = (house.key(1), house.key(2));
    let asked = |key: &str| key.replace('%', "%25");
    let paths = [
        "/".to_owned(),
        "/unknown".to_owned(),
        "/dead-letters".to_owned(),
        "/runs/2026-W42".to_owned(),
        "/runs/2026-W42/hold".to_owned(),
        "/runs/2026-W42/cancel".to_owned(),
        house.fill("/operations/{key}"),
        format!("/operations/{}", asked(&dead.to_string())),
        format!("/unknown/resolve?verdict=not_delivered&key={}", asked(&unknown.to_string())),
        format!("/dead-letters/replay?how=frozen&key={}", asked(&dead.to_string())),
        "/sign-in".to_owned(),
        "/nowhere".to_owned(),
    ];
    for path in &paths {
        judge(&mut browser, &house, path, "").await;
    }
    let actor = Actor::part("test");
    house.ledger.hold(CAMPAIGN, house.period, "wrong prices", actor).await.unwrap();
    for path in ["/", "/runs/2026-W42", "/runs/2026-W42/resume"] {
        judge(&mut browser, &house, path, "-held").await;
    }
    // The page that is not there is one, and says so itself.
    browser.complaints.retain(|complaint| !complaint.contains("404"));
    assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
}

/// Holds a page against what everybody needs of it. `what` marks its pictures.
async fn judge(browser: &mut Browser, house: &House, path: &str, what: &str) {
    for (width, dark) in [(360, false), (360, true), (1280, false)] {
        browser.screen(width, dark).await.unwrap();
        browser.open(&house.url(path)).await.unwrap();
        let root = "document.documentElement";
        let beyond = format!("{root}.scrollWidth - {root}.clientWidth");
        let beyond = browser.value(&beyond).await.unwrap();
        assert_eq!(beyond, 0, "{path} is wider than {width} pixels");
        let worst = browser.value(CONTRAST).await.unwrap();
        assert!(worst[0].as_f64().unwrap() >= 4.5, "{path}, dark: {dark}: {worst}");
        let unnamed = "[...document.querySelectorAll('input:not([type=hidden]), select, textarea')]\
                .filter((field) => !field.ariaLabel && field.labels.length === 0).length";
        assert_eq!(browser.value(unnamed).await.unwrap(), 0, "{path} has fields without a name");
        if let Some(folder) = std::env::var_os("DIGESTD_TEST_PICTURES") {
            let name =
                format!("{}{what}-{width}-{dark}.b64", path.replace(['/', '?', '&', '%'], "_"));
            let picture = browser.picture().await.unwrap();
            std::fs::write(std::path::Path::new(&folder).join(name), picture).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_page_shows_news_by_itself_and_takes_nothing_from_under_the_hands() {
    let house = House::with_token().await;
    let Some(mut browser) = signed_in(&house, "the console's live pages").await else { return };
    browser.open(&house.url("/runs/2026-W42")).await.unwrap();
    browser.value("window.stayed = true").await.unwrap();
    let actor = Actor::part("test");
    house.ledger.hold(CAMPAIGN, house.period, "wrong prices", actor).await.unwrap();
    browser.until("document.body.innerText.includes('wrong prices')").await.unwrap();
    assert_eq!(browser.value("window.stayed").await.unwrap(), true, "the page was loaded anew");
    // A chosen key stays chosen.
    browser.open(&house.url("/dead-letters")).await.unwrap();
    browser.tab_to("input[name=key]").await.unwrap();
    browser.press(" ").await.unwrap();
    house.ledger.resume(CAMPAIGN, house.period, actor).await.unwrap();
    browser.until("!document.getElementById('note').hidden").await.unwrap();
    let chosen = browser.value("document.querySelectorAll('input[name=key]:checked').length").await;
    assert_eq!(chosen.unwrap(), 1);
    assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
}
