//! A headless Chromium, driven by its DevTools protocol over two pipes.

use crate::absent::absent;
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe::{OpenOptions, Receiver, Sender};
use tokio::process::Child;

/// Where Debian's package has it.
const CHROMIUM: &str = "/usr/bin/chromium";
/// How long anything in a browser may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A browser with one page; it ends with this value.
pub struct Browser {
    to: Sender,
    from: Receiver,
    unread: Vec<u8>,
    session: Option<String>,
    last: u64,
    /// What the page has complained of: errors of scripts, and what its policy forbade.
    pub complaints: Vec<String>,
    _child: Child,
    _folder: TempDir,
}

impl Browser {
    /// Starts a browser with an empty page; `None`, said in a line, where there is none.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(not_tested: &str) -> Result<Option<Self>> {
        if !Path::new(CHROMIUM).exists() {
            absent("Chromium", not_tested, "apt-get install chromium");
            return Ok(None);
        }
        let folder = tempfile::tempdir()?;
        let [commands, answers] = ["commands", "answers"].map(|name| folder.path().join(name));
        let made = Command::new("mkfifo").args([&commands, &answers]).status()?;
        if !made.success() {
            bail!("mkfifo failed");
        }
        // Open at both ends, so that nobody waits for the other.
        let mut both = OpenOptions::new();
        both.read_write(true);
        let (to, from) = (both.open_sender(&commands)?, both.open_receiver(&answers)?);
        let child = tokio::process::Command::new("sh")
            .args(["-c", "exec \"$@\" 3<\"$COMMANDS\" 4>\"$ANSWERS\"", "sh", CHROMIUM])
            .args(["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"])
            .args(["--disable-dev-shm-usage", "--no-first-run", "--disable-extensions"])
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .arg("about:blank")
            .env("COMMANDS", &commands)
            .env("ANSWERS", &answers)
            .env("HOME", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let mut browser = Self {
            to,
            from,
            unread: Vec::new(),
            session: None,
            last: 0,
            complaints: Vec::new(),
            _child: child,
            _folder: folder,
        };
        let page = browser.call("Target.createTarget", json!({"url": "about:blank"})).await?;
        let asked = json!({"targetId": page["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", asked).await?;
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({})).await?;
        }
        Ok(Some(browser))
    }

    /// Goes to `url` and waits until the page is there.
    ///
    /// # Errors
    /// When it is not there in time.
    pub async fn open(&mut self, url: &str) -> Result<()> {
        let went = self.call("Page.navigate", json!({"url": url})).await?;
        if let Some(error) = went["errorText"].as_str() {
            bail!("{url}: {error}");
        }
        self.until("document.readyState === 'complete'").await
    }

    /// The value of an expression in the page.
    ///
    /// # Errors
    /// When it throws.
    pub async fn value(&mut self, expression: &str) -> Result<Value> {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.call("Runtime.evaluate", asked).await?;
        if answer["exceptionDetails"].is_object() {
            bail!("{expression}: {}", answer["exceptionDetails"]);
        }
        Ok(answer["result"]["value"].take())
    }

    /// Waits until an expression is true. The page may be left for another meanwhile.
    ///
    /// # Errors
    /// When it is not in time.
    pub async fn until(&mut self, expression: &str) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if matches!(self.value(expression).await, Ok(Value::Bool(true))) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let text = self.value("document.body.innerText").await?;
        bail!("{expression} has not come true; the page says {text}")
    }

    /// Writes text where the focus is.
    ///
    /// # Errors
    /// When the browser does not take it.
    pub async fn write(&mut self, text: &str) -> Result<()> {
        self.call("Input.insertText", json!({"text": text})).await.map(drop)
    }

    /// Presses a key: `Tab`, `Enter` or ` `.
    ///
    /// # Errors
    /// When the browser does not take it.
    pub async fn press(&mut self, key: &str) -> Result<()> {
        let (code, number, text) = match key {
            "Enter" => ("Enter", 13, "\r"),
            " " => ("Space", 32, " "),
            other => (other, 9, ""),
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let event = json!({
                "type": kind, "key": key, "code": code, "windowsVirtualKeyCode": number, "text": text,
            });
            self.call("Input.dispatchKeyEvent", event).await?;
        }
        Ok(())
    }

    /// Goes on by Tab until the element that `selector` names has the focus.
    ///
    /// # Errors
    /// When it cannot be reached so.
    pub async fn tab_to(&mut self, selector: &str) -> Result<()> {
        let reached = format!("document.activeElement.matches({})", Value::from(selector));
        for _ in 0..200 {
            if self.value(&reached).await? == true {
                return Ok(());
            }
            self.press("Tab").await?;
        }
        bail!("{selector} is not reached by the keyboard")
    }

    /// Shows the page as on a screen of this width, in dark or light colours, with scrollbars that take
    /// no room, as a phone's do.
    ///
    /// # Errors
    /// When the browser does not take it.
    pub async fn screen(&mut self, width: u32, dark: bool) -> Result<()> {
        let size = json!({"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size).await?;
        self.call("Emulation.setScrollbarsHidden", json!({"hidden": true})).await?;
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features})).await.map(drop)
    }

    /// The page as a picture, in PNG and base64.
    ///
    /// # Errors
    /// When the browser makes none.
    pub async fn picture(&mut self) -> Result<String> {
        let asked = json!({"format": "png", "captureBeyondViewport": true});
        let made = self.call("Page.captureScreenshot", asked).await?;
        Ok(made["data"].as_str().unwrap_or_default().to_owned())
    }

    async fn call(&mut self, method: &str, parameters: Value) -> Result<Value> {
        self.last += 1;
        let mut command = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&command)?;
        bytes.push(0);
        self.to.write_all(&bytes).await?;
        let answering = async {
            loop {
                let message = self.message().await?;
                if message["id"] == self.last {
                    return anyhow::Ok(message);
                }
                self.note(&message);
            }
        };
        let mut message = tokio::time::timeout(PATIENCE, answering)
            .await
            .with_context(|| format!("Chromium does not answer {method}"))??;
        if message["error"].is_object() {
            bail!("{method}: {}", message["error"]);
        }
        Ok(message["result"].take())
    }

    /// Keeps what an event complains of.
    fn note(&mut self, event: &Value) {
        let of = &event["params"];
        let complaint = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => &of["exceptionDetails"],
            Some("Log.entryAdded") if of["entry"]["level"] == "error" => &of["entry"],
            _ => return,
        };
        self.complaints.push(complaint.to_string());
    }

    async fn message(&mut self) -> Result<Value> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == 0) {
                let rest = self.unread.split_off(end + 1);
                let mut message = std::mem::replace(&mut self.unread, rest);
                message.pop();
                return Ok(serde_json::from_slice(&message)?);
            }
            if self.from.read_buf(&mut self.unread).await? == 0 {
                bail!("Chromium has ended");
            }
        }
    }
}
