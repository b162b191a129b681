import { isIP } from "node:net";

import { ChannelCredentials, type ChannelOptions, credentials } from "@grpc/grpc-js";

const VERSION = "0.1.0";

/** Largest message sent or received, in bytes, as at the router: a prompt of a million tokens fits. */
export const MESSAGE_LIMIT = 64 << 20;

/** Certificates, as PEM. Without them: the system's authorities, and no certificate of one's own. */
export interface Tls {
  ca?: Buffer;
  certificate?: Buffer;
  key?: Buffer;
  /** Name that the router's certificate must have, if not the URL's. */
  serverName?: string;
}

const OPTIONS: ChannelOptions = {
  "grpc.max_send_message_length": MESSAGE_LIMIT,
  "grpc.max_receive_message_length": MESSAGE_LIMIT,
  // A request may wait long for its first token: only pings tell a slow router from a dead connection.
  "grpc.keepalive_time_ms": 30_000,
  "grpc.keepalive_timeout_ms": 10_000,
  // Routers are replicas behind one name; one long connection would leave all but one idle.
  "grpc.service_config": JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
  "grpc.service_config_disable_resolution": 1,
  // What may be asked again is decided here, by the errors' own advice.
  "grpc.enable_retries": 0,
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 5_000,
  // A client's connections are its own: closing it closes them.
  "grpc.use_local_subchannel_pool": 1,
  "grpc.primary_user_agent": `tandem-sdk-typescript/${VERSION}`,
};

/** What a URL says: `http://host:port` is plain text, `https://host:port` is TLS, `host:port` is the former. */
export class Address {
  readonly target: string;
  readonly tls: boolean;
  readonly loopback: boolean;

  constructor(text: string) {
    const withScheme = text.includes("://") ? text : `http://${text}`;
    const url = URL.canParse(withScheme) ? new URL(withScheme) : undefined;
    if (!url || !["http:", "https:"].includes(url.protocol) || url.pathname !== "/") {
      throw new TypeError(`url must be http://host:port or https://host:port, not ${JSON.stringify(text)}`);
    }
    this.tls = url.protocol === "https:";
    this.target = `dns:///${url.hostname}:${url.port || (this.tls ? 443 : 80)}`;
    const host = url.hostname.replace(/^\[|\]$/g, "");
    this.loopback = host === "localhost" || host === "::1" || (isIP(host) === 4 && host.startsWith("127."));
  }
}

/** Credentials and options of a channel. */
export function channelArguments(address: Address, tls: Tls | undefined): [ChannelCredentials, ChannelOptions] {
  if (!address.tls) {
    if (tls) throw new TypeError("tls needs an https url");
    return [credentials.createInsecure(), OPTIONS];
  }
  const secure = credentials.createSsl(tls?.ca ?? null, tls?.key ?? null, tls?.certificate ?? null);
  return [secure, tls?.serverName ? { ...OPTIONS, "grpc.ssl_target_name_override": tls.serverName } : OPTIONS];
}
