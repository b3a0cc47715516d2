//! Asking SNS for a page: its signing certificate, or the confirmation of a subscription.

use crate::provider::exchange::Connection;
use crate::provider::tls::{TlsError, connector};
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, StatusCode};
use std::path::Path;
use std::time::Duration;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::Url;

/// How long SNS may take, so that the request behind it is still answered in time.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whoever asks for a page.
pub trait Fetch: Send + Sync {
    /// The page at `url`, whose address has been found to be SNS's.
    ///
    /// # Errors
    /// A short code, such as `http 404`, where there is no page.
    fn get<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<Vec<u8>, String>>;
}

/// Asks by HTTPS. The server's certificate is verified, and no redirect is followed.
pub struct Https(TlsConnector);

impl Https {
    /// Trusts the platform's authorities and, beside them, those in `ca_file`.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn new(ca_file: Option<&Path>) -> Result<Self, TlsError> {
        Ok(Self(connector(ca_file)?))
    }

    /// The page at `url`, from a server that listens at `place`, and proves to be the URL's host.
    async fn get_from(&self, place: (&str, u16), url: &Url) -> Result<Vec<u8>, String> {
        let host = url.host_str().unwrap_or_default();
        let connection = Connection::open(place.0, place.1, PATIENCE).await;
        let connection = connection.map_err(|failure| failure.code)?;
        let connection = connection.secure(&self.0, host, PATIENCE).await;
        let connection = connection.map_err(|failure| failure.code)?;
        let target = &url[url::Position::BeforePath..url::Position::AfterQuery];
        let mut request = Request::builder()
            .uri(target)
            .body(Full::<Bytes>::default())
            .map_err(|_| "http request malformed".to_owned())?;
        let name = HeaderValue::from_str(host).map_err(|_| "http request malformed".to_owned())?;
        request.headers_mut().insert(HOST, name);
        let answer = connection.exchange(request).await.map_err(|error| error.to_string())?;
        if answer.status != StatusCode::OK {
            return Err(format!("http {}", answer.status.as_u16()));
        }
        let body = answer.body.ok_or_else(|| "http answer cut off".to_owned())?;
        Ok(body.to_vec())
    }
}

impl Fetch for Https {
    fn get<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<Vec<u8>, String>> {
        async move {
            let host = url.host_str().unwrap_or_default();
            let place = (host, url.port_or_known_default().unwrap_or(443));
            let page = timeout(PATIENCE, self.get_from(place, url)).await;
            page.unwrap_or_else(|_| Err("http timeout".to_owned()))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use digest_tests::sns::Pages;

    #[tokio::test]
    async fn a_page_comes_by_tls_from_the_host_itself_or_not_at_all() {
        let host = "sns.eu-west-1.amazonaws.com";
        let page = ("/SimpleNotificationService-1.pem".to_owned(), "a page".to_owned());
        let pages = Pages::serve(host, [page].into()).await.unwrap();
        let https = Https::new(Some(pages.authority().file())).unwrap();
        let place = ("127.0.0.1", pages.port());
        let url = |text: &str| Url::parse(text).unwrap();
        let right = url("https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-1.pem");
        assert_eq!(https.get_from(place, &right).await, Ok(b"a page".to_vec()));
        assert!(pages.asked()[0].to_ascii_lowercase().contains(&format!("\r\nhost: {host}\r\n")));
        let missing = url("https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription");
        assert_eq!(https.get_from(place, &missing).await, Err("http 404".to_owned()));
        assert!(pages.asked()[1].starts_with("GET /?Action=ConfirmSubscription HTTP/1.1\r\n"));
        // Another host's certificate, and one that nobody vouches for.
        let other = url("https://sns.eu-west-2.amazonaws.com/SimpleNotificationService-1.pem");
        let refused = Err("http tls certificate".to_owned());
        assert_eq!(https.get_from(place, &other).await, refused);
        assert_eq!(Https::new(None).unwrap().get_from(place, &right).await, refused);
        assert_eq!(pages.asked().len(), 2);
    }
}
