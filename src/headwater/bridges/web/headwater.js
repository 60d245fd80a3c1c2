// A node of Headwater, from a browser. No build step, no dependencies:
//
//   import { connect } from "/headwater.js";
//   const node = connect();                                   // this page's own site, or connect("wss://…/ws", {token})
//   node.subscribe("building.doors", { where: "floor = :f", params: { f: 3 } }, (event) => …);
//   await node.publish("building.lights", { room: "lab", on: true });
//
// After a break it connects again and goes on where it was; what could not be kept meanwhile is told to `onDropped`.

const FIRST_PAUSE = 250, LONGEST_PAUSE = 15000, ACK_EVERY = 64;
const SILENCE = 3; // times what the node says is its longest: then the connection counts as broken
const REFUSED = 1008, LOGGED_OUT = 3000, BROKEN = 4000, ELSEWHERE = 4001;

export function connect(url, options = {}) {
  return new Node(url ?? location.origin.replace(/^http/, "ws") + "/ws", options);
}

class Node {
  #url; #options; #socket = null; #session = ""; #pause = FIRST_PAUSE; #next = 1; #over = ""; #welcome = false;
  #alive = 10; #silence = 0; #subscriptions = new Map(); #waiting = new Map(); #unsent = [];

  // options: user and password, or token (a text, or a function that gives one, or a promise of one); onState(state, why);
  // onDropped(subscription, count); onEnded(subscription, why)
  constructor(url, options) {
    this.#url = url;
    this.#options = options;
    this.#open();
  }

  // Events of a channel that pass an interest, to a handler: handler(event, number). With `binary`, records as Uint8Array.
  subscribe(channel, { where = "", params = {}, history = 0, binary = false } = {}, handler) {
    const id = this.#next++;
    const asked = { op: "subscribe", id, channel, where, params, history, binary };
    const subscription = { id, channel, asked, handler, last: 0, there: false, cancel: () => this.#cancel(id) };
    this.#subscriptions.set(id, subscription);
    subscription.ready = this.#ask("s" + id, asked);
    subscription.ready.catch(() => {});
    return subscription;
  }

  // An event, or a record as Uint8Array; the promise is kept when the node has published it, and broken when that is refused.
  publish(channel, event) {
    const id = this.#next++;
    return this.#ask("p" + id, { op: "publish", id, channel, event });
  }

  close() {
    this.#end("closed");
  }

  #ask(key, message) {
    return new Promise((resolve, reject) => {
      if (this.#over) throw new Error(this.#over);
      const data = written(message);
      this.#waiting.set(key, { resolve, reject });
      this.#say(message, data);
    });
  }

  #cancel(id) {
    if (!this.#subscriptions.delete(id)) return;
    this.#settle("s" + id, null, "cancelled");
    this.#say({ op: "cancel", id });
  }

  #say(message, data = written(message)) {
    if (this.#isOpen) this.#socket.send(data);
    else this.#unsent.push({ op: message.op, id: message.id, data });
  }

  get #isOpen() {
    return this.#welcome && this.#socket.readyState === WebSocket.OPEN;
  }

  // Whatever a page does when it is told something, this goes on.
  #tell(name, ...said) {
    try { this.#options[name]?.(...said); } catch (error) { reportError(error); }
  }

  async #open() {
    let { user = "", password = "", token = "" } = this.#options;
    if (typeof token === "function") {
      try { token = await token(); } catch (error) { return this.#lost(BROKEN, `no token: ${error}`); }
      if (this.#over) return;
    }
    const after = Object.fromEntries([...this.#subscriptions].map(([id, each]) => [id, each.last]));
    const hello = JSON.stringify({ op: "hello", user, password, token, session: this.#session, after });
    let socket;
    try { socket = this.#socket = new WebSocket(this.#url); } catch (error) { return this.#end(String(error)); }
    socket.binaryType = "arraybuffer";
    socket.onopen = () => socket.send(hello);
    socket.onmessage = ({ data }) => {
      this.#listen(socket);
      this.#heard(typeof data === "string" ? read(data) : records(data));
    };
    socket.onclose = ({ code, reason }) => this.#lost(code, reason);
    this.#listen(socket);
  }

  // A network that is gone says nothing of it: the node says something now and then, and who hears nothing comes again.
  #listen(socket) {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => {
      abandon(socket, BROKEN);
      this.#lost(BROKEN, "nothing was heard for too long");
    }, SILENCE * 1000 * this.#alive);
  }

  #lost(code, reason) {
    clearTimeout(this.#silence);
    this.#welcome = false;
    // A refusal would come again; everything else may pass.
    const expired = code === LOGGED_OUT && typeof this.#options.token !== "function";
    if (code === REFUSED || code === ELSEWHERE || expired) return this.#end(reason || "closed");
    this.#tell("onState", "closed", reason);
    const unsent = new Set(this.#unsent.map((each) => each.op === "publish" && each.id));
    for (const key of [...this.#waiting.keys()])
      if (key[0] === "p" && !unsent.has(Number(key.slice(1))))
        this.#settle(key, null, "the connection broke before the node has answered: it may have been published");
    setTimeout(() => this.#over || this.#open(), this.#pause * (0.5 + Math.random()));
    this.#pause = Math.min(2 * this.#pause, LONGEST_PAUSE);
  }

  // It does not come again: nothing is left waiting.
  #end(why) {
    if (this.#over) return;
    this.#over = why;
    clearTimeout(this.#silence);
    if (this.#socket) abandon(this.#socket, 1000);
    for (const key of [...this.#waiting.keys()]) this.#settle(key, null, why);
    this.#subscriptions.clear();
    this.#unsent = [];
    this.#tell("onState", "ended", why);
  }

  #heard(said) {
    const subscription = this.#subscriptions.get(said.id);
    switch (said.op) {
      case "welcome":
        this.#welcomed(said);
        break;
      case "events":
        if (!subscription) return;
        said.events.forEach((event, at) => {
          const number = said.first + at;
          if (number <= subscription.last) return; // it came before the break
          subscription.last = number;
          try { subscription.handler(event, number); } catch (error) { reportError(error); }
          if (number % ACK_EVERY === 0 && this.#isOpen) this.#say({ op: "ack", upto: { [said.id]: number } });
        });
        break;
      case "dropped":
        if (subscription) this.#tell("onDropped", subscription, said.count);
        break;
      case "subscribed":
        if (subscription) subscription.there = true;
        this.#settle("s" + said.id, said);
        break;
      case "published":
        this.#settle("p" + said.id, said);
        break;
      case "refused":
      case "ended":
        this.#settle("p" + said.id, null, said.why);
        if (this.#subscriptions.delete(said.id) && !this.#settle("s" + said.id, null, said.why))
          this.#tell("onEnded", subscription, said.why); // it was there before, and is not any more
        break;
    }
  }

  #welcomed(said) {
    this.#pause = FIRST_PAUSE;
    this.#session = said.session;
    this.#alive = said.alive;
    this.#welcome = true;
    const unsent = this.#unsent;
    this.#unsent = [];
    const begun = new Set(unsent.map((each) => each.op === "subscribe" && each.id));
    const there = new Set(said.subscriptions);
    for (const each of [...this.#subscriptions.values()]) {
      if (!said.resumed) {
        // The node has forgotten this client: everything is asked for anew, and numbers begin anew.
        if (each.there) this.#tell("onDropped", each, null);
        each.last = 0;
        each.there = false;
      }
      // What was asked for when the connection broke may have been heard, or not.
      if (each.there || begun.has(each.id)) continue;
      if (there.has(each.id)) this.#heard({ op: "subscribed", id: each.id });
      else if (this.#subscriptions.has(each.id)) this.#say(each.asked);
    }
    unsent.forEach((each) => this.#say(each, each.data));
    this.#tell("onState", said.resumed ? "resumed" : "connected", "");
  }

  // Whether somebody was waiting for it.
  #settle(key, value, why) {
    const found = this.#waiting.get(key);
    if (!found) return false;
    this.#waiting.delete(key);
    if (why === undefined) found.resolve(value);
    else found.reject(new Error(why));
    return true;
  }
}

function abandon(socket, code) {
  socket.onopen = socket.onmessage = socket.onclose = null;
  socket.close(code);
}

// JSON, in which integers that no number of JavaScript holds are BigInt, and what is not finite is text, as events have it.
function read(text) {
  return /\d{16}/.test(text) ? JSON.parse(text, exact) : JSON.parse(text);
}

function exact(key, value, context) {
  const lost = typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source);
  return lost ? BigInt(context.source) : value;
}

function written(message) {
  if (message.event instanceof Uint8Array) return record(message);
  return JSON.stringify(message, (key, value) => {
    if (typeof value === "bigint") return JSON.rawJSON(String(value));
    return typeof value === "number" && !Number.isFinite(value) ? String(value) : value;
  });
}

// Binary messages, as `messages.py` has them.
function record({ id, channel, event }) {
  const name = new TextEncoder().encode(channel);
  const made = new Uint8Array(8 + name.length + event.length), view = new DataView(made.buffer);
  view.setUint32(0, id, true);
  view.setUint32(4, name.length, true);
  made.set(name, 8);
  made.set(event, 8 + name.length);
  return made;
}

function records(data) {
  const view = new DataView(data), events = [];
  for (let at = 16; at < data.byteLength; at += events.at(-1).length)
    events.push(new Uint8Array(data, (at += 4), view.getUint32(at - 4, true)));
  return { op: "events", id: view.getUint32(0, true), first: Number(view.getBigUint64(8, true)), events };
}
