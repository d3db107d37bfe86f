//! Topic tracker records by the crate `distributed-topic-tracker`, for tests of another
//! implementation.
//!
//! `write` prints records as JSON. `read` takes one JSON object a line, as `write` makes them, with
//! at least `topic`, `minute`, `secret` and `encrypted`, and answers each with one line: what the
//! crate decrypts, verifies and decodes, or `{"error": …}`. All byte strings are hexadecimal.

use std::io::BufRead;

use anyhow::{Context, Result, bail};
use distributed_topic_tracker::{
    EncryptedRecord, Record, RotationHandle, TopicId, encryption_keypair, salt, signing_keypair,
};
use ed25519_dalek::SigningKey;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The content of the crate's own gossip records, whose type is behind its iroh feature.
#[derive(Debug, Serialize, Deserialize)]
struct Content {
    active_peers: [[u8; 32]; 5],
    last_message_hashes: [[u8; 32]; 5],
}

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("write") => write(),
        Some("read") => read(),
        _ => bail!("usage: topic-tracker-records write|read"),
    }
}

fn write() -> Result<()> {
    let name = "hyperbloom test topic";
    let named = TopicId::new(name);
    let raw = TopicId::from_hash(&[7; 32]);
    let records = [
        one(&named, b"a secret", 0, 1, 0, 0)?,
        one(&named, b"a secret", 29_000_000, 1, 5, 5)?,
        one(&named, b"another secret", 29_000_000, 2, 1, 0)?,
        one(&raw, &[9; 32], 31_666_666, 3, 2, 3)?,
        one(&raw, b"", u64::from(u32::MAX) + 5, 4, 0, 1)?,
    ];
    let topics = json!([{"name": name, "hash": hex::encode(named.hash())}]);
    let written = json!({"topics": topics, "records": records});
    println!("{}", serde_json::to_string_pretty(&written)?);
    Ok(())
}

/// `count` slots that are not zero: the slot's number in every byte, above `first`.
fn slots(first: u8, count: u8) -> [[u8; 32]; 5] {
    let mut all = [[0; 32]; 5];
    for slot in 0..count {
        all[usize::from(slot)] = [first + slot; 32];
    }
    all
}

fn one(
    topic: &TopicId,
    secret: &[u8],
    minute: u64,
    seed: u8,
    peers: u8,
    hashes: u8,
) -> Result<Value> {
    let publisher = SigningKey::from_bytes(&[seed; 32]);
    let content = Content {
        active_peers: slots(0x10, peers),
        last_message_hashes: slots(0x80, hashes),
    };
    let record = Record::sign(topic.hash(), minute, content, &publisher)?;
    let secret_hash = TopicId::new(secret).hash();
    let encryption = encryption_keypair(topic, &RotationHandle::default(), secret_hash, minute);
    let encrypted = record.encrypt(&encryption).to_bytes()?;
    let signing = signing_keypair(topic, minute);
    let item_salt = salt(topic, minute);
    let item =
        mainline::MutableItem::new(signing.clone(), &encrypted, i64::MAX, Some(&item_salt));
    Ok(json!({
        "topic": hex::encode(topic.hash()),
        "secret": hex::encode(secret),
        "minute": minute,
        "publisher_seed": hex::encode([seed; 32]),
        "publisher": hex::encode(record.pub_key()),
        "active_peers": slots(0x10, peers).map(hex::encode),
        "last_message_hashes": slots(0x80, hashes).map(hex::encode),
        "signing_seed": hex::encode(signing.to_bytes()),
        "signing_key": hex::encode(signing.verifying_key().to_bytes()),
        "salt": hex::encode(item_salt),
        "encryption_seed": hex::encode(encryption.to_bytes()),
        "record": hex::encode(record.to_bytes()),
        "encrypted": hex::encode(&encrypted),
        "item_target": hex::encode(item.target().as_bytes()),
        "item_signature": hex::encode(item.signature()),
    }))
}

fn read() -> Result<()> {
    for line in std::io::stdin().lock().lines() {
        let asked: Value = serde_json::from_str(&line?)?;
        println!("{}", opened(&asked).unwrap_or_else(|e| json!({"error": e.to_string()})));
    }
    Ok(())
}

fn opened(asked: &Value) -> Result<Value> {
    let bytes = |key: &str| -> Result<Vec<u8>> {
        Ok(hex::decode(asked[key].as_str().with_context(|| format!("{key} is missing"))?)?)
    };
    let hash: [u8; 32] = bytes("topic")?.as_slice().try_into()?;
    let minute = asked["minute"].as_u64().context("minute is missing")?;
    let topic = TopicId::from_hash(&hash);
    let secret_hash = TopicId::new(bytes("secret")?).hash();
    let key = encryption_keypair(&topic, &RotationHandle::default(), secret_hash, minute);
    let record = EncryptedRecord::from_bytes(bytes("encrypted")?)?.decrypt(&key)?;
    record.verify(&hash, minute)?;
    let content: Content = record.content()?;
    Ok(json!({
        "publisher": hex::encode(record.pub_key()),
        "active_peers": content.active_peers.map(hex::encode),
        "last_message_hashes": content.last_message_hashes.map(hex::encode),
        "record": hex::encode(record.to_bytes()),
    }))
}
