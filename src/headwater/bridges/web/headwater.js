// A node of Headwater, from a browser. No build step, no dependencies:
//
//   import { connect } from "/headwater.js";
//   const node = connect();                                   // this page's own site, or connect("wss://…/ws", {token})
//   node.subscribe("building.doors", { where: "floor = :f", params: { f: 3 } }, (event) => …);
//   await node.publish("building.lights", { room: "lab", on: true });
//
// After a break it connects again and goes on where it was; what could not be kept meanwhile is told to `onDropped`.

const FIRST_PAUSE = 250, LONGEST_PAUSE = 15000, ACK_EVERY = 64;

export function connect(url, options = {}) {
  return new Node(url ?? location.origin.replace(/^http/, "ws") + "/ws", options);
}

class Node {
  #url; #options; #socket = null; #session = ""; #pause = FIRST_PAUSE; #next = 1; #closed = false; #welcome = false;
  #subscriptions = new Map(); #waiting = new Map(); #unsent = [];

  // options: user and password, or token (a text, or a function that gives one); onState(state, why); onDropped(subscription, count)
  constructor(url, options) {
    this.#url = url;
    this.#options = options;
    this.#open();
  }

  // Events of a channel that pass an interest, to a handler: handler(event, number).
  subscribe(channel, { where = "", params = {}, history = 0 } = {}, handler) {
    const id = this.#next++;
    const asked = { op: "subscribe", id, channel, where, params, history };
    const subscription = { id, channel, asked, handler, last: 0, there: false,
      cancel: () => { this.#subscriptions.delete(id); this.#say({ op: "cancel", id }); } };
    subscription.ready = new Promise((resolve, reject) => this.#waiting.set("s" + id, { resolve, reject }));
    subscription.ready.catch(() => {});
    this.#subscriptions.set(id, subscription);
    this.#say(asked);
    return subscription;
  }

  // An event; the promise is kept when the node has published it, and broken when that is refused.
  publish(channel, event) {
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      this.#waiting.set("p" + id, { resolve, reject });
      this.#say({ op: "publish", id, channel, event });
    });
  }

  close() {
    this.#closed = true;
    this.#socket?.close(1000);
    this.#giveUp("closed");
  }

  #giveUp(why) {
    for (const each of this.#waiting.values()) each.reject(new Error(why));
    this.#waiting.clear();
  }

  #say(message) {
    if (this.#welcome && this.#socket.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
    else this.#unsent.push(message);
  }

  #open() {
    const { user = "", password = "" } = this.#options;
    const token = typeof this.#options.token === "function" ? this.#options.token() : this.#options.token ?? "";
    const after = Object.fromEntries([...this.#subscriptions].map(([id, each]) => [id, each.last]));
    const socket = (this.#socket = new WebSocket(this.#url));
    this.#welcome = false;
    socket.onopen = () => socket.send(JSON.stringify({ op: "hello", user, password, token, session: this.#session, after }));
    socket.onmessage = ({ data }) => this.#heard(JSON.parse(data));
    socket.onclose = ({ code, reason }) => this.#lost(code, reason);
  }

  #lost(code, reason) {
    this.#options.onState?.("closed", reason);
    // A refusal would come again; everything else may pass.
    const expired = code === 3000 && typeof this.#options.token !== "function";
    if (this.#closed || code === 1008 || expired) {
      this.#giveUp(reason || "closed");
      return;
    }
    const unsent = new Set(this.#unsent.map((each) => each.op === "publish" && each.id));
    for (const key of [...this.#waiting.keys()])
      if (key[0] === "p" && !unsent.has(Number(key.slice(1))))
        this.#settle(key, null, "the connection broke before the node has answered: it may have been published");
    setTimeout(() => this.#closed || this.#open(), this.#pause * (0.5 + Math.random()));
    this.#pause = Math.min(2 * this.#pause, LONGEST_PAUSE);
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
          if (number % ACK_EVERY === 0) this.#say({ op: "ack", upto: { [said.id]: number } });
        });
        break;
      case "dropped":
        if (subscription) this.#options.onDropped?.(subscription, said.count);
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
        if (said.op === "ended" || this.#waiting.has("s" + said.id)) this.#subscriptions.delete(said.id);
        this.#settle("s" + said.id, null, said.why);
        this.#settle("p" + said.id, null, said.why);
        break;
    }
  }

  #welcomed(said) {
    this.#pause = FIRST_PAUSE;
    this.#session = said.session;
    this.#welcome = true;
    const unsent = this.#unsent;
    this.#unsent = [];
    if (!said.resumed) {
      // The node has forgotten this client: everything is asked for anew, and numbers begin anew.
      const begun = new Set(unsent.map((each) => each.op === "subscribe" && each.id));
      for (const each of this.#subscriptions.values()) {
        if (each.there && each.last) this.#options.onDropped?.(each, null);
        each.last = 0;
        if (!begun.has(each.id)) this.#say(each.asked);
      }
    } else {
      // What was asked for when the connection broke may have been heard, or not.
      const there = new Set(said.subscriptions);
      const known = new Set([...there, ...unsent.map((each) => each.op === "subscribe" && each.id)]);
      for (const each of this.#subscriptions.values()) {
        if (each.there) continue;
        if (!known.has(each.id)) this.#say(each.asked);
        else if (there.has(each.id)) this.#heard({ op: "subscribed", id: each.id });
      }
    }
    unsent.forEach((each) => this.#say(each));
    this.#options.onState?.(said.resumed ? "resumed" : "connected", "");
  }

  #settle(key, value, why) {
    const found = this.#waiting.get(key);
    if (!found) return;
    this.#waiting.delete(key);
    if (why === undefined) found.resolve(value);
    else found.reject(new Error(why));
  }
}
