//! rskafka through the matrix; see ../README.md. It has no consumer groups and sets no configs.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::{Record, RecordAndOffset};
use serde_json::json;

const T0: i64 = 1_700_000_000_000;
const VERSION: &str = "0.6.0"; // as in Cargo.toml: the crate does not say it
const WAIT: Duration = Duration::from_secs(30);

type Outcome = Result<(), Box<dyn std::error::Error>>;

struct Matrix {
    client: Client,
    topic: String,
}

fn time(ms: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(ms).unwrap()
}

fn record(key: Option<&str>, value: Option<&str>, timestamp: i64) -> Record {
    let bytes = |text: &str| text.as_bytes().to_vec();
    Record { key: key.map(bytes), value: value.map(bytes), headers: BTreeMap::new(), timestamp: time(timestamp) }
}

fn check(right: bool, found: impl std::fmt::Debug) -> Outcome {
    if right { Ok(()) } else { Err(format!("found {found:?}").into()) }
}

impl Matrix {
    async fn partition(&self, topic: &str, partition: i32) -> Result<PartitionClient, Box<dyn std::error::Error>> {
        Ok(self.client.partition_client(topic, partition, UnknownTopicHandling::Error).await?)
    }

    async fn produce(&self, index: i64, name: &str, codec: Compression) -> Outcome {
        for partition in 0..2 {
            let records = (0..10).filter(|n| n % 2 == partition).map(|n| {
                let key = format!("{name}-{n}");
                let value = format!("value of {key} {}", "x".repeat(100));
                record(Some(&key), Some(&value), T0 + 1000 * index + n)
            });
            let records: Vec<_> = records.collect();
            let to = self.partition(&self.topic, partition as i32).await?;
            let offsets = to.produce(records.clone(), codec).await?;
            let (found, _) = to.fetch_records(offsets[0], 1..1_000_000, 1000).await?;
            let found: Vec<_> = found.into_iter().take(records.len()).map(|r| r.record).collect();
            check(found == records, &found)?;
        }
        Ok(())
    }

    async fn nulls(&self) -> Outcome {
        let records = vec![record(None, Some("no key"), T0 + 5000), record(Some("tombstone"), None, T0 + 5001)];
        self.partition(&self.topic, 0).await?.produce(records, Compression::NoCompression).await?;
        Ok(())
    }

    async fn headers(&self) -> Outcome {
        let mut one = record(Some("headers"), Some("headers"), T0 + 5002);
        one.headers.insert("text".into(), b"plain".to_vec());
        one.headers.insert("bytes".into(), vec![0, 255]);
        self.partition(&self.topic, 0).await?.produce(vec![one], Compression::NoCompression).await?;
        Ok(())
    }

    async fn read(&self, of: &PartitionClient, offset: i64) -> Result<Vec<RecordAndOffset>, Box<dyn std::error::Error>> {
        Ok(of.fetch_records(offset, 1..1_000_000, 1000).await?.0)
    }

    async fn seek(&self) -> Outcome {
        let of = self.partition(&self.topic, 0).await?;
        let offset = of.get_offset(OffsetAt::Timestamp(time(T0 + 2000))).await?;
        let found = self.read(&of, offset).await?;
        let key = found.first().and_then(|r| r.record.key.clone());
        check(key == Some(b"snappy-0".to_vec()), key)
    }

    async fn delete_records(&self) -> Outcome {
        let of = self.partition(&format!("{}.short", self.topic), 0).await?;
        let records = (0..10).map(|n| record(Some(&format!("short-{n}")), Some(""), T0 + n)).collect();
        let offsets = of.produce(records, Compression::NoCompression).await?;
        of.delete_records(offsets[5], 10_000).await?;
        let start = of.get_offset(OffsetAt::Earliest).await?;
        check(start == offsets[5], start)
    }

    async fn delete_topic(&self) -> Outcome {
        let gone = format!("{}.gone", self.topic);
        self.client.controller_client()?.delete_topic(gone.clone(), 10_000).await?;
        let topics = self.client.list_topics().await?;
        check(topics.iter().all(|t| t.name != gone), topics)
    }

    async fn run(&self, feature: &str) -> Option<Outcome> {
        Some(match feature {
            "produce none" => self.produce(0, "none", Compression::NoCompression).await,
            "produce gzip" => self.produce(1, "gzip", Compression::Gzip).await,
            "produce snappy" => self.produce(2, "snappy", Compression::Snappy).await,
            "produce lz4" => self.produce(3, "lz4", Compression::Lz4).await,
            "produce zstd" => self.produce(4, "zstd", Compression::Zstd).await,
            "null key and value" => self.nulls().await,
            "headers" => self.headers().await,
            "seek by timestamp" => self.seek().await,
            "delete records" => self.delete_records().await,
            "delete topic" => self.delete_topic().await,
            _ => return None,
        })
    }
}

fn missing(feature: &str) -> &'static str {
    match feature {
        "create topic" => "it creates topics, but without configs",
        "idempotent producer" => "it has no idempotence",
        "alter config" => "it has no configs",
        "transaction" => "it has no transactions",
        _ => "it has no consumer groups",
    }
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let client = ClientBuilder::new(vec![arguments[1].clone()]).build().await.unwrap();
    let matrix = Matrix { client, topic: arguments[2].clone() };
    println!("{}", json!({"version": VERSION}));
    for feature in [
        "create topic", "produce none", "produce gzip", "produce snappy", "produce lz4", "produce zstd", "null key and value",
        "headers", "idempotent producer", "consume in a group", "commit", "lag", "seek by timestamp", "list groups",
        "alter config", "delete records", "delete topic", "transaction",
    ] {
        let line = match tokio::time::timeout(WAIT, matrix.run(feature)).await {
            Err(_) => json!({"feature": feature, "ok": false, "why": "no answer in 30 s"}),
            Ok(None) => json!({"feature": feature, "none": missing(feature)}),
            Ok(Some(Ok(()))) => json!({"feature": feature, "ok": true}),
            Ok(Some(Err(e))) => json!({"feature": feature, "ok": false, "why": e.to_string()}),
        };
        println!("{line}");
    }
}
