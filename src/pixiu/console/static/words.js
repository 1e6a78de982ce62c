/** Texts of the shell; pages bring their own. */
import { addWords } from '/i18n.js';

addWords({
  en: {
    'nav.pages': 'Pages', 'nav.chat': 'Chat', 'nav.topics': 'Topics', 'nav.dead-letters': 'Dead letters', 'nav.sessions': 'Sessions',
    'nav.live': 'Live', 'nav.audit': 'Audit', 'nav.cluster': 'Cluster', 'nav.pipeline': 'Pipeline',
    'menu.open': 'Open the menu', 'menu.close': 'Close the menu', close: 'Close', cancel: 'Cancel', retry: 'Try again', loading: 'Loading',
    refresh: 'Refresh', 'language.switch': '中文', 'language.label': 'Switch to Chinese', 'theme.dark': 'Dark', 'theme.light': 'Light',
    'theme.to.dark': 'Switch to dark colours', 'theme.to.light': 'Switch to light colours', 'log.out': 'Log out',
    'day.today': 'Today', 'day.yesterday': 'Yesterday',
    'unit.us': '{n} µs', 'unit.ms': '{n} ms', 'unit.s': '{n} s', 'unit.min': '{n} min', 'unit.h': '{n} h', 'unit.d': '{n} d',
    'admin.needed': 'This page is for admins', 'admin.how': 'Log in with an admin’s token. On the server, this prints one:',
    'login.hello': 'Welcome to Pixiu', 'login.what': 'Messages that arrive: once, in order, and provably.',
    'login.name': 'Your name', 'login.name.hint': 'Any name will do. A second window can be somebody else.', 'login.start': 'Start chatting',
    'login.token': 'Token', 'login.token.hint': 'A token says who you are. On the server, this prints one:', 'login.enter': 'Log in',
    'login.use.token': 'Log in with a token instead', 'login.use.name': 'Log in with a name instead', 'login.bad': 'That token is not one of ours, or it has ended.',
    'elsewhere.title': 'This server is part of a cluster', 'elsewhere.map': 'Open the map', 'page.away': 'The server cannot be reached. It may be starting again.', 'page.failed': 'This page could not be shown', 'soon.title': 'Nothing to see here yet',
    'state.connecting': 'Connecting …', 'state.waiting': 'No connection. Trying again in {s} s.', 'state.now': 'Try now', 'state.offline': 'This device is offline.',
    'state.kicked': 'You were logged out by the server: {reason}.', 'state.elsewhere': 'You are logged in in another window, so this one is paused.', 'state.here': 'Use it here', 'state.unauthenticated': 'Your token is not valid, or not any more.', 'state.again': 'Log in again',
  },
  zh: {
    'nav.pages': '页面', 'nav.chat': '聊天', 'nav.topics': '主题', 'nav.dead-letters': '死信', 'nav.sessions': '会话',
    'nav.live': '实时', 'nav.audit': '审计', 'nav.cluster': '集群', 'nav.pipeline': '流水线',
    'menu.open': '打开菜单', 'menu.close': '关闭菜单', close: '关闭', cancel: '取消', retry: '重试', loading: '正在加载',
    refresh: '刷新', 'language.switch': 'English', 'language.label': '切换到英文', 'theme.dark': '深色', 'theme.light': '浅色',
    'theme.to.dark': '切换到深色', 'theme.to.light': '切换到浅色', 'log.out': '退出登录',
    'day.today': '今天', 'day.yesterday': '昨天',
    'unit.us': '{n} 微秒', 'unit.ms': '{n} 毫秒', 'unit.s': '{n} 秒', 'unit.min': '{n} 分钟', 'unit.h': '{n} 小时', 'unit.d': '{n} 天',
    'admin.needed': '此页面仅供管理员使用', 'admin.how': '请用管理员令牌登录。在服务器上运行以下命令可获得令牌：',
    'login.hello': '欢迎使用貔貅', 'login.what': '消息必达：只到一次，次序不乱，有据可查。',
    'login.name': '你的名字', 'login.name.hint': '任何名字都可以。再开一个窗口，就可以是另一个人。', 'login.start': '开始聊天',
    'login.token': '令牌', 'login.token.hint': '令牌说明你是谁。在服务器上运行以下命令可获得令牌：', 'login.enter': '登录',
    'login.use.token': '改用令牌登录', 'login.use.name': '改用名字登录', 'login.bad': '令牌无效，或者已经过期。',
    'elsewhere.title': '此服务器属于一个集群', 'elsewhere.map': '打开地图', 'page.away': '无法连接服务器，它可能正在重启。', 'page.failed': '无法显示此页面', 'soon.title': '这里暂时没有内容',
    'state.connecting': '正在连接……', 'state.waiting': '连接已断开，{s} 秒后重试。', 'state.now': '立即重试', 'state.offline': '此设备处于离线状态。',
    'state.kicked': '服务器已让你退出：{reason}。', 'state.elsewhere': '你已在另一个窗口登录，此窗口已暂停。', 'state.here': '在此使用', 'state.unauthenticated': '你的令牌无效，或已失效。', 'state.again': '重新登录',
  },
});
