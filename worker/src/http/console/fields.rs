//! The fields of a query or a form, each of which may come more than once.

use super::Failed;
use crate::http::access::Caller;
use crate::http::decisions::{Decider, unusable};
use crate::http::desk::Desk;
use axum::body::Bytes;
use axum::http::{HeaderMap, Uri};
use digest_workflows::operation::Period;
use url::form_urlencoded;

/// Names and values, in order.
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    pub(super) fn of_query(uri: &Uri) -> Self {
        Self(
            form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes())
                .into_owned()
                .collect(),
        )
    }

    /// Those of a form that asks for a change: the caller's own, with the mark of their session.
    pub(super) fn of_change(
        desk: &Desk,
        caller: &Caller,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<Self, Failed> {
        let fields = Self::of_body(body);
        desk.access.may_change(caller, headers, fields.one("mark").unwrap_or_default())?;
        Ok(fields)
    }

    pub(super) fn of_body(body: &Bytes) -> Self {
        Self(form_urlencoded::parse(body).into_owned().collect())
    }

    /// The first value of `name` that is not empty.
    pub(super) fn one(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, value)| key == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

    /// Every value of `name`.
    pub(super) fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone()).collect()
    }

    /// The period in `period`, if one is asked for.
    pub(super) fn period(&self) -> Result<Option<Period>, Failed> {
        let parsed = self.one("period").map(Period::parse).transpose();
        Ok(parsed.map_err(|error| unusable(error.to_string()))?)
    }

    /// Who decides, and why.
    pub(super) fn decider(&self, caller: &Caller) -> Result<Decider, Failed> {
        Ok(Decider::new(&caller.name, self.one("reason").unwrap_or_default())?)
    }
}
