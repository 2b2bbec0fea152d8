// The client's side of gRPC over HTTP/2: one stream in both directions, and unary calls beside it. Plain text: a hub on
// this machine. A call is a POST whose body is a row of messages, each behind five bytes (0 = not compressed, then its
// length), and so is the answer's; how it went stands in the trailers.
"use strict";

const http2 = require("node:http2");

const LARGEST_MESSAGE = 16 * 1024 * 1024;
const PATIENCE = 10000; // milliseconds for a unary call

class Connection {
  constructor(address) {
    this.session = http2.connect(`http://${address}`);
    this.stream = null;
    this.over = null;
    this.reason = "the hub ended the connection";
    this.session.on("error", (error) => (this.reason = error.message));
    this.session.on("close", () => this.over?.(this.reason));
  }

  whenOver(call) {
    this.over = call;
  }

  // The one stream: `take` gets each message.
  open(path, take) {
    this.stream = this.request(path);
    readMessages(this.stream, take, (error) => this.fail(error));
    this.stream.on("trailers", (trailers) => this.fail(statusOf(trailers)));
    this.stream.on("close", () => this.session.close());
  }

  send(message) {
    if (this.stream.writable) {
      this.stream.write(frame(message));
    }
  }

  end(done) {
    this.over = done;
    this.stream.end();
    setTimeout(() => this.session.destroy(), 2000).unref(); // a hub that does not take leave
  }

  // A unary call: its answer, or an error with the status.
  ask(path, message) {
    return new Promise((resolve, reject) => {
      const stream = this.request(path);
      let answer = null;
      stream.setTimeout(PATIENCE, () => stream.destroy(new Error(`${path} was not answered in time`)));
      stream.on("error", reject);
      readMessages(stream, (found) => (answer = found), reject);
      stream.on("response", (headers) => "grpc-status" in headers && reject(statusOf(headers)));
      stream.on("trailers", (trailers) => (answer === null ? reject(statusOf(trailers)) : resolve(answer)));
      stream.end(frame(message));
    });
  }

  request(path) {
    const stream = this.session.request({
      ":method": "POST",
      ":path": path,
      "content-type": "application/grpc",
      te: "trailers",
    });
    stream.on("error", (error) => (this.reason = error.message));
    return stream;
  }

  fail(error) {
    this.reason = error.message;
    this.stream.close();
  }
}

function readMessages(stream, take, fail) {
  let rest = Buffer.alloc(0);
  stream.on("data", (chunk) => {
    rest = Buffer.concat([rest, chunk]);
    while (rest.length >= 5) {
      const length = rest.readUInt32BE(1);
      if (rest[0] !== 0 || length > LARGEST_MESSAGE) {
        fail(new Error("the hub sent something that is no message"));
        return;
      }
      if (rest.length < 5 + length) {
        return;
      }
      take(rest.subarray(5, 5 + length));
      rest = rest.subarray(5 + length);
    }
  });
}

function frame(message) {
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

function statusOf(headers) {
  const text = decodeURIComponent(headers["grpc-message"] ?? "");
  return new Error(`status ${headers["grpc-status"]} ${text}`.trim());
}

module.exports = { Connection };
